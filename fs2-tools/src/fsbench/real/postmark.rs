//! PostMark itself.

use std::fs;

use super::super::control::Control;
use super::super::workload::{Needs, PassReport, Setup, Verified, Workload};
use super::super::{BenchError, Site};
use super::{Parameters, classes, program, report, run, step, whole};

/// PostMark in a directory of its own.
struct Postmark(Parameters, u64);

pub(super) fn make_postmark(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Postmark(Parameters::of(setup)?, setup.seed)))
}

impl Workload for Postmark {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        let n = self.0.files + self.0.transactions;
        Needs { bytes: n * 40_000, inodes: n + 10, descriptors: 32, memory: 16 << 20 }
    }

    fn prepare(&mut self, site: &Site, _: &Control) -> Result<(), BenchError> {
        let dir = whole(site, "pool");
        fs::create_dir(&dir).map_err(BenchError::at(&dir, "making it"))?;
        let config = format!(
            "set location {}\nset number {}\nset transactions {}\nset size 8192 65536\nset seed {}\nset report terse\nrun\nquit\n",
            dir.display(),
            self.0.files,
            self.0.transactions,
            self.1 % 0x7fff_ffff
        );
        let path = site.path("config");
        fs::write(&path, config).map_err(BenchError::at(&path, "writing"))
    }

    fn reopen(&mut self, _: &Site) -> Result<(), BenchError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["run"]));
        step(&mut recorder, 0, || run(program("postmark", site)?.arg("config")))?;
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        // It deletes what it made; what is left is what it could not.
        let dir = whole(site, "pool");
        let left = fs::read_dir(&dir).map_err(BenchError::at(&dir, "reading it"))?.count();
        let mut verified = Verified::default();
        verified.note(&dir, 0, (left > 0).then(|| format!("{left} files are left")));
        Ok(verified)
    }
}
