//! Tokens to statements. Nothing here recurses: braces nest as deep as the grammar does, and no deeper.

use super::ast::*;
use super::error::{Pos, ScriptError, shown};
use super::lex::{Piece, Token, number, tokens};

const FILE: &[&str] = &[
    "name",
    "path",
    "size",
    "filesize",
    "prealloc",
    "paralloc",
    "reuse",
    "readonly",
    "writeonly",
    "trusttree",
    "cached",
];
const FILESET: &[&str] = &[
    "name",
    "path",
    "entries",
    "size",
    "filesize",
    "filesizegamma",
    "dirwidth",
    "dirdepthrv",
    "dirgamma",
    "leafdirs",
    "prealloc",
    "paralloc",
    "reuse",
    "readonly",
    "writeonly",
    "trusttree",
    "cached",
];
const PROCESS: &[&str] = &["name", "instances", "nice"];
const THREAD: &[&str] = &["name", "procname", "memsize", "instances", "useism", "ioprio"];
const FLOWOP: &[&str] = &[
    "name",
    "filesetname",
    "filename",
    "fd",
    "srcfd",
    "opennext",
    "iosize",
    "random",
    "iters",
    "workingset",
    "directio",
    "dsync",
    "noreadahead",
    "indexed",
    "target",
    "value",
    "blocking",
    "highwater",
];
const COMPOSITE: &[&str] = &["name", "iters"];
const RANDVAR: &[&str] = &["name", "type", "min", "mean", "gamma", "round", "seed", "randsrc", "randtable"];
const CVAR: &[&str] = &["type", "parameters", "min", "max", "round"];
const EVENTGEN: &[&str] = &["rate"];
const MULTI: &[&str] = &["master", "client"];
const STATEMENTS: &[&str] = &[
    "create",
    "debug",
    "define",
    "domultisync",
    "echo",
    "enable",
    "eventgen",
    "exit",
    "help",
    "list",
    "psrun",
    "quit",
    "run",
    "set",
    "shutdown",
    "sleep",
    "stats",
    "system",
    "usage",
    "version",
];

/// Attributes of one statement at most.
const ATTRS_MAX: usize = 100;

type Result<T> = std::result::Result<T, ScriptError>;

pub(super) fn parse(source: &str) -> Result<Vec<Placed<Statement>>> {
    let mut parser = Parser { tokens: tokens(source)?, next: 0 };
    let mut out = Vec::new();
    while *parser.peek() != Token::End {
        let at = parser.at();
        out.push(Placed { at, it: parser.statement()? });
    }
    Ok(out)
}

struct Parser {
    tokens: Vec<(Token, Pos)>,
    next: usize,
}

/// What attributes are looked for: their names, and what they belong to.
type Names = (&'static [&'static str], &'static str);

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn peek_word(&self) -> Option<&str> {
        match self.peek() {
            Token::Word(w) => Some(w),
            _ => None,
        }
    }

    fn at(&self) -> Pos {
        self.tokens[self.next].1
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.next].0.clone();
        // The last token is the end, and stays.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        Err(ScriptError::new(self.at(), format!("expected {what}, found {}", self.peek().name())))
    }

    /// A word that cannot stand where it does; with a value behind it, a comma is missing before it.
    fn unknown(&self, at: Pos, what: &str, word: &str, known: &[&str]) -> ScriptError {
        if self.is_sym('=') {
            return ScriptError::new(at, format!("expected `,` before `{}`", shown(word)));
        }
        ScriptError::unknown(at, what, word, known.iter().copied())
    }

    fn sym(&mut self, c: char, after: &str) -> Result<()> {
        if !self.is_sym(c) {
            return self.expected(&format!("`{c}` {after}"));
        }
        self.take();
        Ok(())
    }

    fn is_sym(&self, c: char) -> bool {
        *self.peek() == Token::Sym(c)
    }

    fn word(&mut self, what: &str) -> Result<(String, Pos)> {
        let at = self.at();
        match self.take() {
            Token::Word(w) => Ok((w, at)),
            _ => {
                self.next -= usize::from(self.at() != at);
                self.expected(what)
            }
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        let (word, at) = self.word("a statement")?;
        match word.as_str() {
            "set" => self.set(),
            "define" => self.define(),
            "create" => self.entity().map(|e| match e {
                Entity::Files => Statement::CreateFiles,
                Entity::Processes => Statement::CreateProcesses,
            }),
            "shutdown" => self.entity().map(|e| match e {
                Entity::Files => Statement::Nothing,
                Entity::Processes => Statement::Shutdown,
            }),
            "run" => Ok(Statement::Run(self.optional_amount()?)),
            "psrun" => self.psrun(),
            "sleep" => match self.optional_amount()? {
                Some(seconds) => Ok(Statement::Sleep(seconds)),
                None => self.expected("a number of seconds after `sleep`"),
            },
            "eventgen" => Ok(Statement::EventGen(self.attrs((EVENTGEN, "eventgen"), false)?)),
            "echo" => Ok(Statement::Echo(self.text("echo")?)),
            "system" => Ok(Statement::System(self.text("system")?)),
            "usage" => self.text("usage").map(|_| Statement::Nothing),
            "debug" => match self.take_int() {
                Some(_) => Ok(Statement::Nothing),
                None => self.expected("a level after `debug`"),
            },
            "list" => {
                let (what, at) = self.word("`fileset` or `flowop` after `list`")?;
                match what.as_str() {
                    "fileset" | "filesets" | "flowop" | "flowops" => Ok(Statement::Nothing),
                    _ => Err(ScriptError::unknown(at, "thing to list", &what, ["fileset", "flowop"])),
                }
            }
            "version" | "help" => Ok(Statement::Nothing),
            "stats" => {
                let (what, at) = self.word("`clear` or `snap` after `stats`")?;
                match what.as_str() {
                    "clear" => Ok(Statement::Nothing),
                    "snap" => Ok(Statement::Snapshot),
                    _ => Err(ScriptError::unknown(at, "statistics command", &what, ["clear", "snap"])),
                }
            }
            "quit" | "exit" => Ok(Statement::Quit),
            "enable" => {
                let (what, at) = self.word("`lathist` or `multi` after `enable`")?;
                match what.as_str() {
                    "lathist" => Ok(Statement::LatencyHistogram),
                    "multi" => {
                        self.attrs((MULTI, "enable multi"), false)?;
                        Ok(Statement::Multi("enable multi"))
                    }
                    _ => Err(ScriptError::unknown(at, "thing to enable", &what, ["lathist", "multi"])),
                }
            }
            "domultisync" => {
                self.attrs((&["value"], "domultisync"), false)?;
                Ok(Statement::Multi("domultisync"))
            }
            _ => Err(self.unknown(at, "statement", &word, STATEMENTS)),
        }
    }

    fn entity(&mut self) -> Result<Entity> {
        let (word, at) = self.word("`files` or `processes`")?;
        match word.as_str() {
            "file" | "files" | "fileset" | "filesets" => Ok(Entity::Files),
            "process" | "processes" | "thread" | "threads" => Ok(Entity::Processes),
            _ => Err(ScriptError::unknown(at, "entity", &word, ["files", "filesets", "processes"])),
        }
    }

    fn take_int(&mut self) -> Option<u64> {
        match self.peek() {
            Token::Int(n) => {
                let n = *n;
                self.take();
                Some(n)
            }
            _ => None,
        }
    }

    /// A number or a variable, if one stands here.
    fn optional_amount(&mut self) -> Result<Option<Placed<Term>>> {
        let at = self.at();
        Ok(match self.peek() {
            Token::Int(_) | Token::Var(_) => Some(Placed { at, it: self.term("a number")?.it }),
            _ => None,
        })
    }

    fn psrun(&mut self) -> Result<Statement> {
        let period_s = match *self.peek() {
            // With a minus the original starts each period from zero; each line here is of its period anyway.
            Token::Int(n) | Token::NegInt(n) => {
                self.take();
                Some(n)
            }
            _ => None,
        };
        let seconds = if period_s.is_some() { self.optional_amount()? } else { None };
        Ok(Statement::PsRun { period_s, seconds })
    }

    fn text(&mut self, after: &str) -> Result<Vec<Piece>> {
        match self.peek() {
            Token::Text(_) => {
                let Token::Text(pieces) = self.take() else { unreachable!("it was just looked at") };
                Ok(pieces)
            }
            _ => self.expected(&format!("a quoted text after `{after}`")),
        }
    }

    fn set(&mut self) -> Result<Statement> {
        let at = self.at();
        match self.take() {
            Token::Var(name) => {
                self.sym('=', &format!("after `${name}`"))?;
                Ok(Statement::Set { name, value: self.assigned()? })
            }
            Token::Word(w) if w == "mode" => {
                let (what, at) = self.word("`quit` or `nousestats` after `set mode`")?;
                match what.as_str() {
                    "nousestats" => Ok(Statement::Nothing),
                    "quit" => {
                        let (mode, at) = self.word("timeout, alldone or firstdone")?;
                        Ok(Statement::Mode(match mode.as_str() {
                            "timeout" => QuitMode::Timeout,
                            "alldone" => QuitMode::AllDone,
                            "firstdone" => QuitMode::FirstDone,
                            _ => {
                                let known = ["timeout", "alldone", "firstdone"];
                                return Err(ScriptError::unknown(at, "quit mode", &mode, known));
                            }
                        }))
                    }
                    _ => Err(ScriptError::unknown(at, "mode", &what, ["quit", "nousestats"])),
                }
            }
            _ => {
                self.next -= usize::from(self.at() != at);
                self.expected("a variable or `mode` after `set`")
            }
        }
    }

    fn assigned(&mut self) -> Result<Assigned> {
        let opens = matches!(self.tokens.get(self.next + 1), Some((Token::Sym('('), _)));
        if let (Some(word), true) = (self.peek_word(), opens) {
            let names: Names = match word {
                "randvar" => (RANDVAR, "randvar"),
                "cvar" => (CVAR, "cvar"),
                _ => {
                    let word = word.to_owned();
                    return Err(ScriptError::unknown(self.at(), "function", &word, ["randvar", "cvar"]));
                }
            };
            self.take();
            self.take();
            let attrs = self.attrs(names, false)?;
            self.sym(')', &format!("after the attributes of {}", names.1))?;
            return Ok(if names.1 == "cvar" { Assigned::Custom(attrs) } else { Assigned::Random(attrs) });
        }
        let first = self.term("a value")?;
        let mut rest = Vec::new();
        if matches!(first.it, Term::Int(_) | Term::Var(_)) {
            while let Some(next) = self.operator()? {
                rest.push(next);
            }
        }
        Ok(Assigned::Sum(first, rest))
    }

    /// An operator and what follows it. `$a-1` and `$a/2` come as a variable and a word or negative number.
    fn operator(&mut self) -> Result<Option<(char, Placed<Term>)>> {
        let at = self.at();
        match self.peek() {
            Token::Sym(c @ ('+' | '-' | '*' | '/')) => {
                let c = *c;
                self.take();
                let term = self.term("a number or variable")?;
                match term.it {
                    Term::Int(_) | Term::Var(_) => Ok(Some((c, term))),
                    _ => Err(ScriptError::new(term.at, format!("expected a number or variable after `{c}`"))),
                }
            }
            Token::NegInt(n) => {
                let n = *n;
                self.take();
                Ok(Some(('-', Placed { at, it: Term::Int(n) })))
            }
            Token::Word(w) if w.starts_with('/') => {
                let it = number(&w[1..]).map_err(|why| ScriptError::new(at, why))?;
                self.take();
                Ok(Some(('/', Placed { at, it: Term::Int(it) })))
            }
            _ => Ok(None),
        }
    }

    fn term(&mut self, what: &str) -> Result<Placed<Term>> {
        let at = self.at();
        let it = match self.take() {
            Token::Int(n) => Term::Int(n),
            Token::Var(v) => Term::Var(v),
            Token::Text(t) => Term::Text(t),
            // The root, as a path.
            Token::Sym('/') => Term::Word("/".into()),
            Token::Word(w) => match w.as_str() {
                "true" => Term::Bool(true),
                "false" => Term::Bool(false),
                _ => Term::Word(w),
            },
            _ => {
                self.next -= usize::from(self.at() != at);
                return self.expected(what);
            }
        };
        Ok(Placed { at, it })
    }

    /// Attributes with commas between them, also over the ends of lines. Locals are a composite's variables.
    fn attrs(&mut self, (known, of): Names, locals: bool) -> Result<Vec<Attr>> {
        let mut out: Vec<Attr> = Vec::new();
        loop {
            let at = self.at();
            let (name, local) = match self.take() {
                Token::Word(w) => (w, false),
                Token::Var(v) if locals => (v, true),
                _ => {
                    self.next -= usize::from(self.at() != at);
                    return self.expected(&format!("an attribute of {of}"));
                }
            };
            if !local && !known.contains(&name.as_str()) {
                return Err(ScriptError::unknown(
                    at,
                    &format!("attribute of {of}"),
                    &name,
                    known.iter().copied(),
                ));
            }
            if out.len() == ATTRS_MAX {
                return Err(ScriptError::new(at, format!("more than {ATTRS_MAX} attributes")));
            }
            if out.iter().any(|a| a.name == name && a.local == local) {
                return Err(ScriptError::new(at, format!("`{name}` is given twice")));
            }
            let value = if self.is_sym('=') {
                self.take();
                // `randvar name=$x` is the older way to say `set $x=randvar(...)`.
                Some(if name == "randtable" {
                    self.table()?
                } else {
                    self.term(&format!("a value for `{name}`"))?
                })
            } else {
                None
            };
            out.push(Attr { at, name, local, value });
            if !self.is_sym(',') {
                return Ok(out);
            }
            self.take();
        }
    }

    /// Attributes, if any stand here; a flowop may have none, the next one starts with a word too.
    fn attrs_before(&mut self, names: Names, locals: bool) -> Result<Vec<Attr>> {
        let starts = match self.peek() {
            Token::Word(w) => !matches!(w.as_str(), "flowop" | "thread"),
            Token::Var(_) => locals,
            _ => false,
        };
        if starts { self.attrs(names, locals) } else { Ok(Vec::new()) }
    }

    fn table(&mut self) -> Result<Placed<Term>> {
        let at = self.at();
        self.sym('{', "at the start of a table")?;
        let mut rows = Vec::new();
        loop {
            self.sym('{', "at the start of a row: {percent, least, largest}")?;
            let percent = self.term("a percentage")?;
            self.sym(',', "after the percentage")?;
            let least = self.term("the least value")?;
            self.sym(',', "after the least value")?;
            let largest = self.term("the largest value")?;
            self.sym('}', "at the end of a row")?;
            rows.push([Box::new(percent), Box::new(least), Box::new(largest)]);
            if !self.is_sym(',') {
                break;
            }
            self.take();
        }
        self.sym('}', "at the end of a table")?;
        Ok(Placed { at, it: Term::Table(rows) })
    }

    fn define(&mut self) -> Result<Statement> {
        let (word, at) = self.word("what is defined")?;
        match word.as_str() {
            "file" | "files" => {
                Ok(Statement::DefineFiles { one: true, attrs: self.attrs((FILE, "define file"), false)? })
            }
            "fileset" | "filesets" => Ok(Statement::DefineFiles {
                one: false,
                attrs: self.attrs((FILESET, "define fileset"), false)?,
            }),
            "randvar" => Ok(Statement::DefineRandvar(self.attrs((RANDVAR, "define randvar"), false)?)),
            "process" | "processes" => {
                let attrs = self.attrs((PROCESS, "define process"), false)?;
                self.sym('{', "before the process's threads")?;
                let mut threads = Vec::new();
                while !self.is_sym('}') {
                    threads.push(self.thread()?);
                }
                let end = self.at();
                self.take();
                if threads.is_empty() {
                    return Err(ScriptError::new(end, "expected `thread`: this process has none"));
                }
                Ok(Statement::DefineProcess { attrs, threads })
            }
            "flowop" => {
                let attrs = self.attrs((COMPOSITE, "define flowop"), true)?;
                Ok(Statement::DefineFlowop { attrs, flowops: self.flowops()? })
            }
            _ => {
                let known = ["file", "fileset", "process", "flowop", "randvar"];
                Err(ScriptError::unknown(at, "thing to define", &word, known))
            }
        }
    }

    fn thread(&mut self) -> Result<Thread> {
        let (word, at) = self.word("`thread`")?;
        if word != "thread" {
            return Err(self.unknown(at, "part of a process", &word, &["thread"]));
        }
        let attrs = self.attrs_before((THREAD, "thread"), false)?;
        Ok(Thread { at, attrs, flowops: self.flowops()? })
    }

    fn flowops(&mut self) -> Result<Vec<Flowop>> {
        self.sym('{', "before the flowops")?;
        let mut out = Vec::new();
        while !self.is_sym('}') {
            let (word, at) = self.word("`flowop` or `}`")?;
            if word != "flowop" {
                return Err(self.unknown(at, "part of a thread", &word, &["flowop"]));
            }
            let (kind, at) = self.word("a flowop's kind")?;
            let attrs = self.attrs_before((FLOWOP, "flowop"), true)?;
            out.push(Flowop { at, kind, attrs });
        }
        let end = self.at();
        self.take();
        if out.is_empty() {
            return Err(ScriptError::new(end, "expected `flowop`: there is none between the braces"));
        }
        Ok(out)
    }
}

enum Entity {
    Files,
    Processes,
}
