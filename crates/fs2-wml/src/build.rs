//! Statements to a model. Definitions are kept as written and resolved when the processes start, so that a variable
//! may be set after it was named, as in the original.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ast::*;
use super::error::{Pos, ScriptError, shown};
use super::lex::Piece;
use super::model::*;
use super::values::{Attrs, Result, Scope, Value, cvar, randvar};

/// Files or leaf directories of a fileset at most: a hundred times what the original allowed.
pub(super) const ENTRIES_MAX: u64 = 1 << 27;
/// Threads of a script at most: what a Linux allows by default.
const THREADS_MAX: u64 = 32 << 10;
/// Flowops of a script at most, composites taken apart.
const OPS_MAX: usize = 20_000;
/// Composites within composites at most.
const DEPTH_MAX: usize = 32;
/// Bytes of a name at most, as of a file's.
const NAME_MAX: usize = 255;
/// Bytes of a variable's value that is shown.
const SHOWN_BYTES_MAX: usize = 1 << 10;
/// Slots for open files in a thread at most.
const FD_MAX: u64 = u16::MAX as u64;
/// A run, a period or a sleep at most: a year. Beyond some 10^11 years there are no points in time.
const SECONDS_MAX: u64 = 366 * 86_400;
/// Memory of a thread at most.
const MEMORY_MAX: u64 = 1 << 40;

pub(super) fn build(statements: &[Placed<Statement>], overrides: &[(String, String)]) -> Result<Model> {
    let mut builder = Builder { fixed: HashSet::new(), ..Builder::default() };
    let named = names(statements);
    for (name, value) in overrides {
        if !named.contains(name.as_str()) {
            let what = "variable in --set: the script has no";
            return Err(ScriptError::unknown(Pos::START, what, name, named.iter().copied()));
        }
        builder.fixed.insert(name.clone());
        builder.globals.insert(name.clone(), Value::from_text(value));
    }
    for statement in statements {
        if !builder.statement(statement)? {
            break;
        }
    }
    builder.resolve()
}

/// The variables a script sets.
fn names(statements: &[Placed<Statement>]) -> HashSet<&str> {
    statements
        .iter()
        .filter_map(|s| match &s.it {
            Statement::Set { name, .. } => Some(name.as_str()),
            Statement::DefineRandvar(attrs) => match attrs.iter().find(|a| a.name == "name") {
                Some(Attr { value: Some(Placed { it: Term::Var(v) | Term::Word(v), .. }), .. }) => Some(v),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

struct Composite<'a> {
    attrs: &'a [Attr],
    flowops: &'a [Flowop],
    /// How many were defined before it: only those may stand in it, so none contains itself.
    before: usize,
}

type Composites<'a> = HashMap<String, Composite<'a>>;

#[derive(Default)]
struct Builder<'a> {
    globals: HashMap<String, Value>,
    /// Variables given from outside: the script's own `set` does not change them.
    fixed: HashSet<String>,
    filesets: Vec<(Pos, bool, &'a [Attr])>,
    processes: Vec<(Pos, &'a [Attr], &'a [Thread])>,
    composites: Composites<'a>,
    event_rate: Option<(Pos, &'a [Attr])>,
    model: Model,
    resolved: Option<Model>,
    ops: usize,
}

impl<'a> Builder<'a> {
    fn scope(&self) -> Scope<'_> {
        Scope { globals: &self.globals, locals: None }
    }

    fn attrs<'b>(&'b self, at: Pos, list: &'b [Attr]) -> Attrs<'b> {
        Attrs { scope: self.scope(), list, at }
    }

    /// Whether the script goes on after it.
    fn statement(&mut self, statement: &'a Placed<Statement>) -> Result<bool> {
        let at = statement.at;
        let defines = matches!(
            statement.it,
            Statement::DefineFiles { .. } | Statement::DefineProcess { .. } | Statement::DefineFlowop { .. }
        );
        if defines && self.resolved.is_some() {
            return Err(ScriptError::new(
                at,
                "a definition after the processes were started: move it before",
            ));
        }
        match &statement.it {
            Statement::Set { name, value } => {
                let value = match value {
                    Assigned::Sum(first, rest) => self.scope().sum(first, rest)?,
                    Assigned::Random(attrs) => Value::Dist(Arc::new(randvar(self.attrs(at, attrs))?)),
                    Assigned::Custom(attrs) => Value::Dist(Arc::new(cvar(self.attrs(at, attrs))?)),
                };
                self.assign(name, value);
            }
            Statement::DefineRandvar(attrs) => {
                let name = match attrs.iter().find(|a| a.name == "name").map(|a| &a.value) {
                    Some(Some(Placed { it: Term::Var(v) | Term::Word(v), .. })) => v,
                    _ => return Err(ScriptError::new(at, "a random variable needs `name=$variable`")),
                };
                let value = Value::Dist(Arc::new(randvar(self.attrs(at, attrs))?));
                self.assign(name, value);
            }
            Statement::Mode(mode) => self.model.quit = *mode,
            Statement::DefineFiles { one, attrs } => self.filesets.push((at, *one, attrs)),
            Statement::DefineProcess { attrs, threads } => self.processes.push((at, attrs, threads)),
            Statement::DefineFlowop { attrs, flowops } => self.composite(at, attrs, flowops)?,
            Statement::EventGen(attrs) => self.event_rate = Some((at, attrs)),
            Statement::LatencyHistogram => self.model.histogram = true,
            Statement::Echo(pieces) => self.say(pieces, at, Step::Echo)?,
            Statement::System(pieces) => self.say(pieces, at, Step::System)?,
            Statement::CreateProcesses => self.step(Step::Start)?,
            Statement::Shutdown => self.step(Step::Stop)?,
            Statement::Snapshot => self.step(Step::Snapshot)?,
            Statement::Sleep(seconds) => {
                let seconds = self.time(seconds, "`sleep`")?;
                self.step(Step::Sleep(seconds))?;
            }
            Statement::Run(seconds) => {
                let seconds = self.seconds(seconds.as_ref())?;
                self.step(Step::Run { seconds, period_s: None })?;
                return Ok(false);
            }
            Statement::PsRun { period_s, seconds } => {
                let seconds = self.seconds(seconds.as_ref())?;
                // The original's period when none is given.
                let period_s = period_s.filter(|p| *p > 0).or(Some(10));
                if period_s > Some(SECONDS_MAX) {
                    return Err(ScriptError::new(at, "the period of `psrun` is longer than a year"));
                }
                self.step(Step::Run { seconds, period_s })?;
                return Ok(false);
            }
            Statement::Multi(what) => {
                let why = format!(
                    "`{what}` needs other hosts, which are not supported: remove it to run on this one"
                );
                return Err(ScriptError::new(at, why));
            }
            Statement::Quit => return Ok(false),
            Statement::CreateFiles | Statement::Nothing => {}
        }
        Ok(true)
    }

    fn seconds(&self, term: Option<&Placed<Term>>) -> Result<Option<u64>> {
        let seconds = term.map(|t| self.time(t, "the run's time")).transpose()?;
        Ok(seconds.filter(|s| *s > 0))
    }

    fn time(&self, term: &Placed<Term>, what: &str) -> Result<u64> {
        match self.scope().int(term, what)? {
            seconds if seconds <= SECONDS_MAX => Ok(seconds),
            _ => Err(ScriptError::new(term.at, format!("{what} is longer than a year"))),
        }
    }

    fn assign(&mut self, name: &str, value: Value) {
        if !self.fixed.contains(name) {
            self.globals.insert(name.to_owned(), value);
        }
    }

    fn say(&mut self, pieces: &[Piece], at: Pos, step: fn(String) -> Step) -> Result<()> {
        let text = self.scope().text(pieces, at)?;
        self.model.steps.push(step(text));
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<()> {
        if matches!(step, Step::Start | Step::Run { .. }) && self.resolved.is_none() {
            self.resolved = Some(self.definitions()?);
        }
        self.model.steps.push(step);
        Ok(())
    }

    fn resolve(mut self) -> Result<Model> {
        let defined = match self.resolved.take() {
            Some(defined) => defined,
            None => self.definitions()?,
        };
        let shown = |value: &Value| match value.show() {
            long if long.len() > SHOWN_BYTES_MAX => "a long text".into(),
            value => value,
        };
        let mut variables: Vec<_> =
            self.globals.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
        variables.sort();
        Ok(Model {
            filesets: defined.filesets,
            processes: defined.processes,
            event_rate: defined.event_rate,
            variables,
            ..self.model
        })
    }

    fn composite(&mut self, at: Pos, attrs: &'a [Attr], flowops: &'a [Flowop]) -> Result<()> {
        let Some(name) = self.attrs(at, attrs).text(&["name"])? else {
            return self.attrs(at, attrs).missing("a composite flowop", "name");
        };
        if OpKind::ALL.iter().any(|(known, _)| *known == name) || self.composites.contains_key(&name) {
            return Err(ScriptError::new(at, format!("flowop `{}` is defined already", shown(&name))));
        }
        let before = self.composites.len();
        self.composites.insert(name, Composite { attrs, flowops, before });
        Ok(())
    }

    /// Everything defined, with the variables as they are now.
    fn definitions(&mut self) -> Result<Model> {
        let mut out = Model::default();
        if let Some((at, attrs)) = self.event_rate {
            out.event_rate = self.attrs(at, attrs).number("rate", 1_000_000_000)?.unwrap_or(0);
        }
        let mut filesets = HashMap::new();
        for (at, one, attrs) in &self.filesets {
            let fileset = self.fileset(*at, *one, attrs)?;
            if filesets.insert(fileset.name.clone(), out.filesets.len()).is_some() {
                let why = format!("fileset `{}` is defined already", shown(&fileset.name));
                return Err(ScriptError::new(*at, why));
            }
            out.filesets.push(fileset);
        }
        for (at, attrs, threads) in self.processes.clone() {
            let process = self.process(at, attrs, threads, &filesets)?;
            out.processes.push(process);
        }
        if out.threads() > THREADS_MAX {
            let why = format!("{} threads are more than can be started ({THREADS_MAX})", out.threads());
            return Err(ScriptError::new(self.processes.last().map_or(Pos::START, |p| p.0), why));
        }
        check_gates(&out)?;
        Ok(out)
    }

    fn fileset(&self, at: Pos, one: bool, attrs: &[Attr]) -> Result<FilesetSpec> {
        let attrs = self.attrs(at, attrs);
        let of = if one { "define file" } else { "define fileset" };
        let Some(name) = attrs.text(&["name"])? else { return attrs.missing(of, "name") };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            let why = format!("`{}` cannot be the name of a directory", shown(&name));
            return Err(ScriptError::new(attrs.find(&["name"]).map_or(at, |a| a.at), why));
        }
        let Some(path) = attrs.text(&["path"])? else { return attrs.missing(of, "path") };
        let (readonly, writeonly) = (attrs.flag("readonly")?, attrs.flag("writeonly")?);
        if readonly && writeonly {
            return Err(ScriptError::new(at, "a fileset cannot be both `readonly` and `writeonly`"));
        }
        let prealloc_percent = match attrs.value(&["prealloc"])? {
            Some((_, Value::Bool(all))) => 100 * u64::from(all),
            _ => attrs.number("prealloc", 100)?.unwrap_or(0),
        };
        attrs.flag("cached")?;
        let leafdirs = attrs.number("leafdirs", ENTRIES_MAX)?.unwrap_or(0);
        let default_entries = u64::from(leafdirs == 0);
        Ok(FilesetSpec {
            name,
            path,
            size: attrs.amount(&["size", "filesize"])?.unwrap_or(Amount::Fixed(1024)),
            size_gamma: attrs.number("filesizegamma", 1 << 30)?.unwrap_or(0),
            entries: if one { 1 } else { self.drawn_once(attrs, "entries")?.unwrap_or(default_entries) },
            leafdirs,
            // As the original's single files: a directory with one file in it.
            dirwidth: if one {
                Amount::Fixed(10)
            } else {
                attrs.amount(&["dirwidth"])?.unwrap_or(Amount::Fixed(0))
            },
            dirgamma: if one { 0 } else { attrs.number("dirgamma", 1 << 30)?.unwrap_or(1500) },
            dirdepth: attrs.amount(&["dirdepthrv"])?,
            prealloc_percent,
            paralloc: attrs.flag("paralloc")?,
            reuse: attrs.flag("reuse")?,
            trusttree: attrs.flag("trusttree")?,
            readonly,
            writeonly,
        })
    }

    /// The number of files may be random: its mean is taken, so that a script means one set of files.
    fn drawn_once(&self, attrs: Attrs, name: &str) -> Result<Option<u64>> {
        match attrs.amount(&[name])? {
            Some(Amount::Drawn(dist)) => Ok(Some((dist.mean().max(0.0) as u64).min(ENTRIES_MAX))),
            _ => attrs.number(name, ENTRIES_MAX),
        }
    }

    fn process(
        &mut self,
        at: Pos,
        attrs: &[Attr],
        threads: &[Thread],
        filesets: &HashMap<String, usize>,
    ) -> Result<ProcessSpec> {
        let attrs = self.attrs(at, attrs);
        let Some(name) = attrs.text(&["name"])? else { return attrs.missing("define process", "name") };
        let instances = attrs.number("instances", THREADS_MAX)?.unwrap_or(1);
        let nice = attrs.number("nice", 19)?.unwrap_or(0);
        let threads = threads.iter().map(|t| self.thread(t, filesets)).collect::<Result<_>>()?;
        Ok(ProcessSpec { name, instances, nice, threads })
    }

    fn thread(&mut self, thread: &Thread, filesets: &HashMap<String, usize>) -> Result<ThreadSpec> {
        let attrs = self.attrs(thread.at, &thread.attrs);
        attrs.flag("useism")?;
        let Some(name) = attrs.text(&["name"])? else { return attrs.missing("thread", "name") };
        let mut out = ThreadSpec {
            name,
            instances: attrs.number("instances", THREADS_MAX)?.unwrap_or(1),
            memory_bytes: attrs.number("memsize", MEMORY_MAX)?.unwrap_or(0),
            ioprio: attrs.number("ioprio", 7)?,
            ops: Vec::new(),
            counters: Vec::new(),
        };
        let mut expansion = Expansion {
            filesets,
            counters: Vec::new(),
            slots: HashMap::new(),
            count: self.ops,
            composites: &self.composites,
            depth: 0,
        };
        let scope = self.scope();
        for flowop in &thread.flowops {
            out.ops.push(expansion.op(flowop, scope, "", self.composites.len())?);
        }
        out.counters = expansion.counters;
        let ops = expansion.count;
        targets(&mut out.ops, &out.counters, scope, &self.composites, &thread.flowops, "")?;
        self.ops = ops;
        Ok(out)
    }
}

struct Expansion<'b, 'a> {
    filesets: &'b HashMap<String, usize>,
    counters: Vec<Counter>,
    slots: HashMap<String, usize>,
    count: usize,
    composites: &'b Composites<'a>,
    depth: usize,
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.into() } else { format!("{prefix}.{name}") }
}

/// The variables of a composite: those of its definition, with the values of its use.
fn locals<'a>(
    definition: &'a [Attr],
    used: &'a [Attr],
    at: Pos,
    scope: Scope,
) -> Result<HashMap<String, Option<Value>>> {
    let value = |attr: &Attr| attr.value.as_ref().map(|term| scope.value(term)).transpose();
    let mut out = HashMap::new();
    for attr in definition.iter().filter(|a| a.local) {
        out.insert(attr.name.clone(), value(attr)?);
    }
    for attr in used.iter().filter(|a| a.local) {
        if !out.contains_key(&attr.name) {
            let known: Vec<&str> = out.keys().map(String::as_str).collect();
            return Err(ScriptError::unknown(attr.at, "local variable", &attr.name, known));
        }
        match value(attr)? {
            Some(value) => out.insert(attr.name.clone(), Some(value)),
            None => return Err(ScriptError::new(at, format!("`${}` needs a value", shown(&attr.name)))),
        };
    }
    Ok(out)
}

impl Expansion<'_, '_> {
    /// The first `visible` composites may be used: those defined before the one this flowop stands in.
    fn op(&mut self, flowop: &Flowop, scope: Scope, prefix: &str, visible: usize) -> Result<Op> {
        self.count += 1;
        if self.count > OPS_MAX {
            let why = format!("more than {OPS_MAX} flowops, composites taken apart");
            return Err(ScriptError::new(flowop.at, why));
        }
        let attrs = Attrs { scope, list: &flowop.attrs, at: flowop.at };
        let builtin = OpKind::ALL.iter().find(|(name, _)| *name == flowop.kind).map(|(_, kind)| *kind);
        let composites = self.composites;
        let composite = composites.get(&flowop.kind).filter(|c| c.before < visible);
        let (kind, composite) = match (builtin, composite) {
            (Some(kind), _) => (kind, None),
            (None, Some(composite)) => (OpKind::Composite, Some(composite)),
            (None, None) => {
                let composites =
                    composites.iter().filter(|(_, c)| c.before < visible).map(|(name, _)| name.as_str());
                let known: Vec<&str> = OpKind::ALL.iter().map(|(name, _)| *name).chain(composites).collect();
                return Err(ScriptError::unknown(flowop.at, "flowop", &flowop.kind, known));
            }
        };
        let name = join(prefix, &attrs.text(&["name"])?.unwrap_or_else(|| flowop.kind.clone()));
        if name.len() > NAME_MAX || self.depth > DEPTH_MAX {
            let why = format!("a name of more than {NAME_MAX} bytes, or composites {DEPTH_MAX} deep");
            return Err(ScriptError::new(flowop.at, why));
        }
        let mut op = self.plain(kind, &attrs, &name)?;
        match composite {
            None => {
                if let Some(local) = flowop.attrs.iter().find(|a| a.local) {
                    return Err(ScriptError::new(
                        local.at,
                        format!("`{}` is no composite flowop", flowop.kind),
                    ));
                }
                op.slot = self.counter(&name, kind);
            }
            Some(definition) => {
                let locals = locals(definition.attrs, &flowop.attrs, flowop.at, scope)?;
                let inner = Scope { globals: scope.globals, locals: Some(&locals) };
                if attrs.find(&["iters"]).is_none() {
                    let defined = Attrs { scope: inner, list: definition.attrs, at: flowop.at };
                    op.iters = defined.amount(&["iters"])?.unwrap_or(Amount::Fixed(1));
                }
                self.depth += 1;
                for flowop in definition.flowops {
                    op.inner.push(self.op(flowop, inner, &name, definition.before)?);
                }
                self.depth -= 1;
            }
        }
        Ok(op)
    }

    fn counter(&mut self, name: &str, kind: OpKind) -> usize {
        *self.slots.entry(name.into()).or_insert_with(|| {
            self.counters.push(Counter { name: name.into(), kind });
            self.counters.len() - 1
        })
    }

    fn plain(&self, kind: OpKind, attrs: &Attrs, name: &str) -> Result<Op> {
        let fileset = match attrs.text(&["filesetname", "filename"])? {
            None => None,
            Some(wanted) => match self.filesets.get(&wanted) {
                Some(i) => Some(*i),
                None => {
                    let at = attrs.find(&["filesetname", "filename"]).map_or(attrs.at, |a| a.at);
                    let known = self.filesets.keys().map(String::as_str);
                    return Err(ScriptError::unknown(at, "fileset", &wanted, known));
                }
            },
        };
        let of = || format!("flowop `{}`", shown(name));
        let opennext = attrs.flag("opennext")?;
        if fileset.is_none() && (kind.needs_fileset() || opennext) {
            return attrs.missing(&of(), "filesetname");
        }
        let iosize = attrs.amount(&["iosize"])?.unwrap_or(Amount::Fixed(0));
        if kind.needs_iosize() && iosize.is_zero() {
            return attrs.missing(&of(), "iosize");
        }
        let random = attrs.flag("random")?;
        if kind == OpKind::AioWrite && !random {
            return attrs.missing(&of(), "random");
        }
        let (value, text) = match attrs.value(&["value"])? {
            Some((_, Value::Str(text))) if kind == OpKind::Print => (Amount::Fixed(0), text),
            _ => (attrs.amount(&["value"])?.unwrap_or(Amount::Fixed(0)), "".into()),
        };
        if kind.needs_value() && value.is_zero() {
            return attrs.missing(&of(), "value");
        }
        let target = attrs.text(&["target"])?;
        if target.is_none() && kind.needs_target() {
            return attrs.missing(&of(), "target");
        }
        Ok(Op {
            kind,
            at: attrs.at,
            slot: usize::MAX,
            iters: attrs.amount(&["iters"])?.unwrap_or(Amount::Fixed(1)),
            fileset,
            fd: attrs.number("fd", FD_MAX)?.unwrap_or(0) as u32,
            srcfd: attrs.number("srcfd", FD_MAX)?.unwrap_or(0) as u32,
            iosize,
            working_set: match attrs.amount(&["workingset"])? {
                Some(Amount::Drawn(dist)) => dist.mean() as u64,
                _ => attrs.number("workingset", i64::MAX as u64)?.unwrap_or(0),
            },
            value,
            highwater: attrs.number("highwater", i64::MAX as u64)?.unwrap_or(1),
            random,
            opennext,
            directio: attrs.flag("directio")?,
            dsync: attrs.flag("dsync")?,
            noreadahead: attrs.flag("noreadahead")?,
            blocking: attrs.flag("blocking")?,
            indexed: attrs.amount(&["indexed"])?,
            target: None,
            gates: target.filter(|_| kind.takes_target()),
            text,
            inner: Vec::new(),
        })
    }
}

/// Resolves what limits and ends go by: a flowop of the same thread, in a composite also by its short name.
fn targets(
    ops: &mut [Op],
    counters: &[Counter],
    scope: Scope,
    composites: &Composites,
    flowops: &[Flowop],
    prefix: &str,
) -> Result<()> {
    for (op, flowop) in ops.iter_mut().zip(flowops) {
        if op.kind == OpKind::Composite {
            let attrs = Attrs { scope, list: &flowop.attrs, at: flowop.at };
            let name = join(prefix, &attrs.text(&["name"])?.unwrap_or_else(|| flowop.kind.clone()));
            let Some(definition) = composites.get(&flowop.kind) else { continue };
            let locals = locals(definition.attrs, &flowop.attrs, flowop.at, scope)?;
            let inner = Scope { globals: scope.globals, locals: Some(&locals) };
            targets(&mut op.inner, counters, inner, composites, definition.flowops, &name)?;
            continue;
        }
        if op.kind.needs_target() {
            continue;
        }
        let Some(target) = op.gates.take() else { continue };
        let at = flowop.attrs.iter().find(|a| a.name == "target").map_or(op.at, |a| a.at);
        let (near, full) = (join(prefix, &target), &target);
        let Some(i) = counters.iter().position(|c| c.name == near || c.name == *full) else {
            let known = counters.iter().map(|c| c.name.as_str());
            return Err(ScriptError::unknown(at, "flowop of this thread as target", &target, known));
        };
        let moves_bytes = counters[i].kind.reads() || counters[i].kind.writes();
        let by_bytes = matches!(op.kind, OpKind::IopsLimit | OpKind::BwLimit | OpKind::FinishOnBytes);
        if by_bytes && !moves_bytes {
            let why = format!("target `{}` neither reads nor writes", shown(&target));
            return Err(ScriptError::new(at, why));
        }
        op.target = Some(i);
    }
    Ok(())
}

/// Whether `target` means the gate with this full name.
pub fn is_gate(full: &str, target: &str) -> bool {
    full == target || full.strip_suffix(target).is_some_and(|rest| rest.ends_with('.'))
}

/// Every post and wake-up has something to open.
fn check_gates(model: &Model) -> Result<()> {
    let threads = || model.processes.iter().flat_map(|p| &p.threads);
    let gates = |of: OpKind| {
        threads().flat_map(|t| &t.counters).filter(move |c| c.kind == of).map(|c| c.name.as_str())
    };
    let mut rest: Vec<&Op> = threads().flat_map(|t| &t.ops).collect();
    while let Some(op) = rest.pop() {
        rest.extend(&op.inner);
        let (of, what) = match op.kind {
            OpKind::SemPost => (OpKind::SemBlock, "semblock as target"),
            OpKind::Wakeup => (OpKind::Block, "block as target"),
            _ => continue,
        };
        let target = op.gates.as_deref().unwrap_or_default();
        if !gates(of).any(|name| is_gate(name, target)) {
            return Err(ScriptError::unknown(op.at, what, target, gates(of)));
        }
    }
    Ok(())
}
