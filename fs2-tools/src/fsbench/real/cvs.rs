//! cvs: an update of a whole working copy.

use std::fs;
use std::time::SystemTime;

use super::super::control::Control;
use super::super::workload::{Needs, PassReport, Setup, Verified, Workload};
use super::super::{BenchError, Site};
use super::{FILE_BYTES, Parameters, classes, name, program, report, run, step, tree, whole};

/// cvs with a repository of its own.
struct Cvs(Parameters);

pub(super) fn make_cvs(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Cvs(Parameters::of(setup)?)))
}

fn cvs(site: &Site, dir: &str, args: &[&str]) -> Result<String, BenchError> {
    let mut command = program("cvs", site)?;
    command.current_dir(site.path(dir)).env("LOGNAME", "fsbench").env("CVS_RSH", "/bin/false");
    run(command.arg("-f").arg("-d").arg(whole(site, "repo")).args(args))
}

impl Workload for Cvs {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        let n = self.0.files;
        Needs {
            bytes: 3 * n * FILE_BYTES,
            inodes: 3 * n + 8 * self.0.dirs + 200,
            descriptors: 32,
            memory: 32 << 20,
        }
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let import = site.path("import");
        tree(&import, &self.0, &mut site.stream("tree"), control)?;
        cvs(site, "", &["init"])?;
        cvs(site, "import", &["-Q", "import", "-m", "one", "tree", "vendor", "start"])?;
        fs::remove_dir_all(&import).map_err(BenchError::at(&import, "removing it"))?;
        cvs(site, "", &["-Q", "checkout", "-d", "work", "tree"]).map(drop)
    }

    fn reopen(&mut self, _: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["update"]));
        let said = step(&mut recorder, 0, || cvs(site, "work", &["-q", "update"]))?;
        if let Some(line) = said.lines().next() {
            return Err(BenchError::Failed(format!("cvs found changes nobody made: {line}")));
        }
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        // cvs compares what is younger than it wrote down, and takes the rest for what it checked out.
        for f in 0..self.0.files {
            let path = site.path("work").join(name(f, &self.0));
            let date = || fs::File::options().append(true).open(&path)?.set_modified(SystemTime::now());
            date().map_err(BenchError::at(&path, "dating it"))?;
        }
        let said = cvs(site, "work", &["-q", "diff", "--brief"]).err().map(|e| e.to_string());
        let mut verified = Verified::default();
        verified.note(&site.path("work"), self.0.files * FILE_BYTES, said);
        Ok(verified)
    }
}
