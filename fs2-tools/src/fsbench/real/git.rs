//! git: status, grep, and a checkout there and back.

use std::fs;

use super::super::control::Control;
use super::super::workload::{Needs, PassReport, Setup, Verified, Workload};
use super::super::{BenchError, Site};
use super::{FILE_BYTES, Parameters, classes, program, report, run, step, tree};

/// git in a repository of its own.
struct Git(Parameters);

pub(super) fn make_git(setup: &Setup) -> Result<Box<dyn Workload>, BenchError> {
    Ok(Box::new(Git(Parameters::of(setup)?)))
}

fn git(site: &Site, args: &[&str]) -> Result<String, BenchError> {
    let mut command = program("git", site)?;
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "fsbench")
            .env(format!("GIT_{who}_EMAIL"), "fsbench@localhost");
        command.env(format!("GIT_{who}_DATE"), "1128988800 +0000");
    }
    run(command.args(["-C", "work"]).args(args))
}

impl Workload for Git {
    fn parameters(&self) -> serde_json::Value {
        self.0.json()
    }

    fn needs(&self) -> Needs {
        Needs {
            bytes: 3 * self.0.files * FILE_BYTES,
            inodes: 3 * self.0.files + 2 * self.0.dirs + 500,
            descriptors: 64,
            memory: 64 << 20,
        }
    }

    fn prepare(&mut self, site: &Site, control: &Control) -> Result<(), BenchError> {
        let work = site.path("work");
        tree(&work, &self.0, &mut site.stream("tree"), control)?;
        git(site, &["init", "-q", "-b", "main"])?;
        // Nothing of its own accord in the background.
        git(site, &["config", "gc.auto", "0"])?;
        git(site, &["add", "-A"])?;
        git(site, &["commit", "-q", "-m", "one"])?;
        git(site, &["checkout", "-q", "-b", "other"])?;
        let mut rng = site.stream("changes");
        for _ in 0..self.0.files.div_ceil(5) {
            let f = rng.below(self.0.files);
            let path = work.join(format!("dir{:03}/file{f:05}.c", f % self.0.dirs));
            fs::write(&path, format!("changed {f}\n")).map_err(BenchError::at(&path, "writing"))?;
        }
        git(site, &["commit", "-q", "-a", "-m", "two"])?;
        git(site, &["checkout", "-q", "main"]).map(drop)
    }

    fn reopen(&mut self, site: &Site) -> Result<(), BenchError> {
        git(site, &["rev-parse", "main"]).map(drop)
    }

    fn is_endless(&self) -> bool {
        false
    }

    fn pass(&mut self, site: &Site, control: &Control) -> Result<PassReport, BenchError> {
        let mut recorder = control.recorder(classes(&["status", "grep", "checkout"]));
        let said = step(&mut recorder, 0, || git(site, &["status", "--porcelain"]))?;
        if !said.is_empty() {
            return Err(BenchError::Failed(format!(
                "git found changes nobody made: {}",
                said.lines().next().unwrap_or("")
            )));
        }
        step(&mut recorder, 1, || git(site, &["grep", "-c", "word0"]))?;
        step(&mut recorder, 2, || git(site, &["checkout", "-q", "other"]))?;
        step(&mut recorder, 2, || git(site, &["checkout", "-q", "main"]))?;
        Ok(report(control, recorder))
    }

    fn verify(&mut self, site: &Site, _: &Control) -> Result<Verified, BenchError> {
        let mut verified = Verified::default();
        // Reads every object, and every file of the work tree again.
        let wrong = git(site, &["fsck", "--full", "--strict"]).err().map(|e| e.to_string());
        verified.note(&site.path("work/.git"), self.0.files * FILE_BYTES, wrong);
        let again = site.path("work/.git/index");
        fs::remove_file(&again).map_err(BenchError::at(&again, "removing it"))?;
        git(site, &["reset", "-q"])?;
        let said = git(site, &["status", "--porcelain"])?;
        let wrong = said.lines().next().map(str::to_owned);
        verified.note(&site.path("work"), self.0.files * FILE_BYTES, wrong);
        Ok(verified)
    }
}
