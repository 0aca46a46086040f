//! FileBench's workload language: a script's text becomes a [`Script`], and with its variables a
//! [`model::Model`], in which every name is resolved and every number known or a random variable. Running it,
//! and everything that touches a file system, is left to `fsbench` (`fs2-tools`); `docs/fsbench-language.md`
//! is the language.
//!
//! Invariants: whatever the text, reading it takes memory and time in proportion to its length and to the
//! bounds in `build`, and nothing recurses deeper than composites may.
//!
//! ```
//! let script = fs2_wml::Script::parse("small.f", "
//!     set $files=4
//!     define fileset name=set,path=/tmp,size=4k,entries=$files,prealloc
//!     define process name=p { thread name=t { flowop statfile name=stat,filesetname=set } }")?;
//! let model = script.build(&[("files".into(), "10".into())])?;
//! assert_eq!((model.filesets[0].entries, model.threads()), (10, 1));
//!
//! let wrong = fs2_wml::Script::parse("wrong.f", "define fileset nam=set").unwrap_err();
//! assert!(wrong.to_string().starts_with("wrong.f:1:16: "), "{wrong}");
//! assert!(wrong.to_string().ends_with("did you mean `name`?"), "{wrong}");
//! # Ok::<(), fs2_wml::ScriptError>(())
//! ```
#![forbid(unsafe_code)]

mod ast;
mod build;
pub mod dist;
mod error;
mod lex;
pub mod model;
mod parse;
pub mod tree;
mod values;

pub use ast::QuitMode;
pub use build::is_gate;
pub use error::{Pos, ScriptError};

use ast::{Placed, Statement};

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    statements: Vec<Placed<Statement>>,
}

impl Script {
    /// Reads a script. `name` stands before the place in errors.
    ///
    /// # Errors
    /// Where it is not of the language: with the place, and what was expected.
    pub fn parse(name: &str, source: &str) -> Result<Self, ScriptError> {
        let statements = parse::parse(source).map_err(|e| e.of_file(name))?;
        Ok(Self { name: name.into(), statements })
    }

    /// Checks it, with `overrides` of the variables it sets: those keep the value given here.
    ///
    /// # Errors
    /// Names that are not known, with the nearest that is; values that cannot be; each with its place.
    pub fn build(&self, overrides: &[(String, String)]) -> Result<model::Model, ScriptError> {
        build::build(&self.statements, overrides).map_err(|e| e.of_file(&self.name))
    }
}
