//! The demo's volume mounted by the kernel.

use std::path::{Path, PathBuf};

use fs2_control::{Client, Command, Reply, Status};
use fs2d::settings::Settings;

use super::{DemoError, System, step};
use crate::volume::{self, MountRecord, Plan};

struct Mounted {
    record: Option<MountRecord>,
    dir: PathBuf,
}

pub(super) fn open(base: &Path, image: &Path, settings: &Settings) -> Result<Box<dyn System>, DemoError> {
    let name = image.file_stem().map(PathBuf::from).unwrap_or_default();
    let dir = base.join(name);
    std::fs::create_dir_all(&dir).map_err(step(dir.display()))?;
    let plan = Plan {
        device: image.to_owned(),
        dir: dir.clone(),
        frontend: None,
        settings: settings.clone(),
        queues: None,
        connections: 1,
        // What was read is to be read only: no time stamps.
        options: vec!["noatime".into()],
    };
    let (record, _) = volume::mount(&plan)?;
    Ok(Box::new(Mounted { record: Some(record), dir }))
}

impl Mounted {
    fn record(&self) -> Result<&MountRecord, DemoError> {
        self.record.as_ref().ok_or_else(|| DemoError::Step("the volume was ended".into()))
    }

    fn ask(&self, command: &Command) -> Result<Reply, DemoError> {
        let control = &self.record()?.control;
        Client::connect(control).and_then(|mut c| c.ask(command)).map_err(|e| DemoError::Step(e.to_string()))
    }

    fn done(&self, command: &Command) -> Result<(), DemoError> {
        match self.ask(command)? {
            Reply::Error { what, .. } => Err(DemoError::Step(what)),
            _ => Ok(()),
        }
    }
}

impl System for Mounted {
    fn frontend(&self) -> String {
        match self.record.as_ref().map(|r| r.frontend.as_str()) {
            Some("nbd") => "through the kernel: NBD, mount".into(),
            _ => "through the kernel: FUSE, loop device, mount".into(),
        }
    }

    fn cold(&mut self) -> Result<(), DemoError> {
        Ok(volume::cold(self.record()?)?)
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, DemoError> {
        std::fs::read(self.dir.join(path)).map_err(step(path))
    }

    fn status(&mut self) -> Result<Status, DemoError> {
        Ok(volume::status(self.record()?)?)
    }

    fn trace_start(&mut self, path: &Path) -> Result<(), DemoError> {
        self.done(&Command::TraceStart { path: path.to_owned() })
    }

    fn trace_stop(&mut self) -> Result<(), DemoError> {
        self.done(&Command::TraceStop)
    }

    fn end(mut self: Box<Self>) -> Result<(), DemoError> {
        let record = self.record.take().ok_or_else(|| DemoError::Step("the volume was ended".into()))?;
        volume::umount(&record.dir)?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(e) = volume::umount(&record.dir)
        {
            eprintln!("fs2: {e}");
        }
    }
}
