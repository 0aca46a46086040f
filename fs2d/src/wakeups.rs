//! Whether the system may give idle processors away while clients and the threads that serve them take turns.
//!
//! A client with one request in flight and the thread that serves it put two processors to sleep and wake them, in every
//! turn. In a guest whose kernel gives an idle processor back to the host (cpuidle driver `haltpoll`), a wake-up takes as
//! long as several requests of 4 KiB. Who asks the kernel for wake-ups without latency (PM QoS, 0 in
//! `/dev/cpu_dma_latency`; Documentation/power/pm_qos_interface.rst) has idle processors poll instead: all there are, on
//! somebody's account, the host's or, where processor time is paid for, the guest's. So:
//!
//! - W1: asked for only where turns are short and each gives a processor back, on trial, and longer only where turns took a
//!   third less than before.
//! - W2: withdrawn when turns become rare or as slow as before, or requests come many at a time; with the process the
//!   kernel withdraws it.
//! - W3: by itself only in such a guest, with few processors, and never for a device that turns.
//!
//! A `haltpoll` guest goes on polling after that until its processors were idle for a quarter of a millisecond, a few times
//! over (`poll_limit_ns` shrinks with idle times that are longer). That is as fast, so W1 finds nothing to gain meanwhile.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;

/// Whether idle processors are kept awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AwakeKind {
    /// In guests that give idle processors back, of at most four.
    Auto,
    /// Wherever it makes short turns faster.
    On,
    /// Never.
    Off,
}

/// Where the kernel is asked: as long as the file is open, no wake-up may take longer than the 32-bit number of microseconds
/// that was written.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// What the kernel says of its processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The driver by which a guest's idle processors are given back, or poll where that is asked for.
const GIVES_BACK: &str = "haltpoll";

/// Guess: taking turns wants two processors awake; with more than as many others it costs more than it brings.
const PROCESSORS_MAX: usize = 4;

/// Turns that are compared with as many others. Guess: some ms of the fastest.
const WINDOW: u32 = 256;

/// Longer turns wait for a device. Guess.
const LONGEST: Duration = Duration::from_micros(200);

/// One turn in so many gives a processor back, or there is nothing to gain. Guess: asleep a turn gives two back, and where a thread
/// asks for its next request (NBD) a third of one.
const GIVEN_BACK: u32 = 4;

/// Windows without a trial after one that brought nothing; twice as many after each further one, up to the second. Guess:
/// trials take less than 2 % of the time.
const REST: (u32, u32) = (64, 1 << 12);

/// Who takes no turns any more is noticed after twice this. Guess: no host loses much by it.
const LOOK: Duration = Duration::from_millis(20);

/// Keeps processors awake, for whoever serves short turns; clones speak of the same. The default never does.
#[derive(Clone, Debug, Default)]
pub struct Wakeups(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    counts: Counts,
    tried: AtomicBool,
    device: PathBuf,
    /// Where the kernel counts how often processors were given back; none: each turn is taken for one.
    usage: Vec<PathBuf>,
    state: Mutex<State>,
    /// It is no longer asked for.
    withdrawn: Condvar,
}

/// Since the window began. Whoever serves writes them: apart from what is only read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    turns: AtomicU32,
    requests: AtomicU64,
}

#[derive(Debug)]
struct State {
    trial: Trial,
    window_began: Instant,
    /// Windows so far, and whatever else ended the count of one.
    windows: u32,
    /// Open while it is asked for.
    asking: Option<File>,
    /// Counts what was asked for, so that who watches one does not mistake another for it.
    number: u64,
}

impl Wakeups {
    /// As `how` says, for what is served from memory.
    pub fn new(how: AwakeKind) -> Wakeups {
        let processors = Path::new(PROCESSORS);
        if how == AwakeKind::Off || how == AwakeKind::Auto && !gives_back_few(processors) {
            return Wakeups::default();
        }
        let usage = usage_files(processors);
        let why = match File::options().write(true).open(DEVICE) {
            _ if usage.is_empty() => "this kernel's processors know no idle states (cpuidle)".into(),
            // As it is opened, nothing is asked for yet.
            Ok(_) => return Wakeups::by(Path::new(DEVICE), usage),
            Err(e) => format!("{DEVICE}: {e}"),
        };
        if how == AwakeKind::On {
            tracing::warn!("--keep-cpus-awake on: {why}");
        }
        Wakeups::default()
    }

    /// Who asks by this file, as the kernel is asked by `/dev/cpu_dma_latency`, and takes each turn for one that gives a
    /// processor back.
    pub fn at(device: &Path) -> Wakeups {
        Wakeups::by(device, Vec::new())
    }

    fn by(device: &Path, usage: Vec<PathBuf>) -> Wakeups {
        let state =
            State { trial: Trial::new(), window_began: Instant::now(), windows: 0, asking: None, number: 0 };
        Wakeups(Some(Arc::new(Shared {
            counts: Counts::default(),
            tried: AtomicBool::new(false),
            device: device.to_owned(),
            usage,
            state: Mutex::new(state),
            withdrawn: Condvar::new(),
        })))
    }

    /// A thread waits for its client, having begun so many requests since it waited before.
    #[inline]
    pub fn turn(&self, requests: usize) {
        let Some(shared) = &self.0 else { return };
        shared.counts.requests.fetch_add(requests as u64, Ordering::Relaxed);
        if shared.counts.turns.fetch_add(1, Ordering::Relaxed) >= WINDOW - 1 {
            shared.window();
        }
    }

    /// Turns and requests since the last window of 256 turns.
    pub fn told(&self) -> (u32, u64) {
        let told = |Counts { turns, requests }: &Counts| {
            (turns.load(Ordering::Relaxed), requests.load(Ordering::Relaxed))
        };
        self.0.as_ref().map_or((0, 0), |shared| told(&shared.counts))
    }

    /// Whether it is being compared, so that nobody should begin to make turns shorter by other means.
    #[inline]
    pub fn are_tried(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.tried.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often processors were given back so far.
    fn given_back(&self) -> Option<u64> {
        if self.usage.is_empty() {
            return None;
        }
        let count = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        self.usage.iter().map(count).sum()
    }

    /// A window may have ended.
    fn window(self: &Arc<Self>) {
        let mut state = self.lock();
        if self.counts.turns.load(Ordering::Relaxed) < WINDOW {
            // Somebody else was faster.
            return;
        }
        let window = self.restart(&mut state);
        state.trial.window(&window, || self.given_back());
        self.follow(&mut state);
    }

    /// The window until now; the next begins.
    fn restart(&self, state: &mut State) -> Window {
        let now = Instant::now();
        state.windows = state.windows.wrapping_add(1);
        Window {
            took: now.duration_since(std::mem::replace(&mut state.window_began, now)),
            turns: self.counts.turns.swap(0, Ordering::Relaxed),
            requests: self.counts.requests.swap(0, Ordering::Relaxed),
        }
    }

    /// Asks or withdraws, as the trial has it now. What was counted meanwhile belongs to neither.
    fn follow(self: &Arc<Self>, state: &mut State) {
        match (state.asking.is_some(), state.trial.is_awake()) {
            (false, true) => match self.ask(state) {
                Ok(()) => _ = self.restart(state),
                Err(e) => {
                    tracing::warn!("processors cannot be kept awake: {}: {e}", self.device.display());
                    state.trial.in_vain();
                }
            },
            (true, false) => {
                state.asking = None;
                state.number += 1;
                self.withdrawn.notify_all();
                self.restart(state);
                tracing::debug!("idle processors sleep again");
            }
            _ => {}
        }
        self.tried.store(state.trial.is_trying(), Ordering::Relaxed);
    }

    fn ask(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let mut device = File::options().write(true).open(&self.device)?;
        device.write_all(&0i32.to_ne_bytes())?;
        let (shared, number) = (self.clone(), state.number);
        std::thread::Builder::new().name("wakeups".into()).spawn(move || shared.watch(number))?;
        state.asking = Some(device);
        tracing::debug!("idle processors are kept awake");
        Ok(())
    }

    /// Keeps W2 for who no longer takes turns, and so tells nothing; returns when what is `number`ed is withdrawn.
    fn watch(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        let progress =
            |state: &State| state.windows.wrapping_mul(WINDOW) + self.counts.turns.load(Ordering::Relaxed);
        let (mut before, mut looked) = (progress(&state), Instant::now());
        while state.number == number {
            let waited = self.withdrawn.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            let took = looked.elapsed();
            if state.number == number && took >= LOOK {
                let now = progress(&state);
                if LONGEST * now.wrapping_sub(before) < took {
                    state.trial.silence();
                    self.follow(&mut state);
                }
                (before, looked) = (now, Instant::now());
            }
        }
    }
}

/// So many turns, and the requests that were served meanwhile.
struct Window {
    took: Duration,
    turns: u32,
    requests: u64,
}

impl Window {
    fn each(&self) -> Duration {
        self.took / u32::try_from(self.requests).unwrap_or(u32::MAX).max(1)
    }

    /// Short turns: one request at a time, as the rule.
    fn is_of_turns(&self) -> bool {
        let turns = u64::from(self.turns);
        (1..=turns + turns / 2).contains(&self.requests) && self.each() <= LONGEST
    }
}

/// Whether it is tried, goes on or ends: by windows of turns, how long each request takes.
#[derive(Debug)]
struct Trial {
    now: Now,
    /// Windows to go before the next trial, and how many after that if it brings nothing.
    rest: u32,
    next_rest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Asleep,
    /// Asleep in short turns; when this window began, so many processors had been given back.
    Looking(Option<u64>),
    /// Awake, compared with so long asleep; whether one window more may show it.
    Trying(Duration, bool),
    /// Awake, the same; whether the last window was no faster.
    Awake(Duration, bool),
}

impl Trial {
    fn new() -> Trial {
        Trial { now: Now::Asleep, rest: 0, next_rest: REST.0 }
    }

    fn is_awake(&self) -> bool {
        matches!(self.now, Now::Trying(..) | Now::Awake(..))
    }

    fn is_trying(&self) -> bool {
        matches!(self.now, Now::Trying(..))
    }

    fn window(&mut self, window: &Window, given_back: impl FnOnce() -> Option<u64>) {
        let (each, turns) = (window.each(), window.is_of_turns());
        let faster = |asleep: Duration| turns && each <= asleep / 3 * 2;
        self.now = match self.now {
            Now::Asleep if self.rest > 0 => {
                self.rest -= 1;
                Now::Asleep
            }
            Now::Asleep if turns => Now::Looking(given_back()),
            Now::Looking(before) if turns => {
                let now = given_back();
                let gave = before.zip(now).map(|(before, now)| now.saturating_sub(before));
                if gave.is_none_or(|gave| gave >= u64::from(window.turns / GIVEN_BACK)) {
                    Now::Trying(each, true)
                } else {
                    // The two take turns on one processor, for now.
                    Now::Looking(now)
                }
            }
            Now::Trying(asleep, _) if faster(asleep) => {
                self.next_rest = REST.0;
                Now::Awake(asleep, false)
            }
            Now::Trying(asleep, true) if turns => Now::Trying(asleep, false),
            Now::Trying(..) => return self.in_vain(),
            Now::Awake(asleep, _) if faster(asleep) => Now::Awake(asleep, false),
            Now::Awake(asleep, false) if turns => Now::Awake(asleep, true),
            Now::Asleep | Now::Looking(_) | Now::Awake(..) => Now::Asleep,
        };
    }

    /// It brought nothing.
    fn in_vain(&mut self) {
        self.now = Now::Asleep;
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(REST.1);
    }

    /// Turns are rare now.
    fn silence(&mut self) {
        match self.now {
            Now::Trying(..) => self.in_vain(),
            _ => self.now = Now::Asleep,
        }
    }
}

/// Whether this is a guest of few processors that gives them back when they are idle.
fn gives_back_few(processors: &Path) -> bool {
    let read = |name| std::fs::read_to_string(processors.join(name)).unwrap_or_default();
    // Not those that this process may use: all of them poll.
    let online = online(read("online").trim()).unwrap_or(usize::MAX);
    read("cpuidle/current_driver").trim() == GIVES_BACK && online <= PROCESSORS_MAX
}

/// How many there are in a list such as `0-2,5`.
fn online(list: &str) -> Option<usize> {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(count).sum()
}

/// Where the kernel counts how often each processor was idle otherwise than polling, which is state 0.
fn usage_files(processors: &Path) -> Vec<PathBuf> {
    let names = |dir: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let numbered = |name: &str| name.strip_prefix(prefix).is_some_and(|n| n.parse::<u32>().is_ok());
        entries
            .map(|e| e.path())
            .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(numbered))
            .collect()
    };
    let states = names(processors, "cpu").into_iter().flat_map(|cpu| names(&cpu.join("cpuidle"), "state"));
    states.filter(|state| !state.ends_with("state0")).map(|state| state.join("usage")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// So many windows of turns, of one length a request asleep and another awake; how many were awake, and how often it
    /// began. Each sleep gives a processor back.
    fn play(trial: &mut Trial, windows: u32, asleep: Duration, awake: Duration) -> (u32, u32) {
        let (mut were, mut began) = (0, 0);
        for _ in 0..windows {
            let before = trial.is_awake();
            let took = WINDOW * if before { awake } else { asleep };
            trial.window(&Window { took, turns: WINDOW, requests: WINDOW.into() }, || None);
            were += u32::from(before);
            began += u32::from(!before && trial.is_awake());
        }
        (were, began)
    }

    #[test]
    fn what_is_faster_goes_on_as_long_as_it_is() {
        let mut trial = Trial::new();
        assert_eq!(play(&mut trial, 1000, us(50), us(15)), (998, 1));
        // One slow window is no reason, two are (W2); and where turns are short again it is tried at once.
        assert_eq!(play(&mut trial, 1, us(50), us(40)), (1, 0));
        assert_eq!(play(&mut trial, 10, us(50), us(30)), (10, 0));
        assert_eq!(play(&mut trial, 2, us(50), us(40)), (2, 0));
        assert_eq!(trial.now, Now::Asleep);
        assert_eq!(play(&mut trial, 3, us(50), us(15)), (1, 1));
        assert!(matches!(trial.now, Now::Awake(..)));
    }

    #[test]
    fn one_bad_window_is_no_failed_trial() {
        let mut trial = Trial::new();
        play(&mut trial, 2, us(50), us(15));
        assert_eq!(play(&mut trial, 1, us(50), us(100)), (1, 0));
        assert_eq!(play(&mut trial, 1000, us(50), us(15)), (1000, 0));
    }

    #[test]
    fn trials_that_bring_nothing_become_rare() {
        for awake in [us(34), us(50), us(3000)] {
            let mut trial = Trial::new();
            let (were, began) = play(&mut trial, 100_000, us(50), awake);
            assert!(were <= 2 * began && (20..40).contains(&began), "{were} {began}");
            assert!(!trial.is_trying());
        }
        // Also those that nobody saw the end of.
        let (mut trial, mut began) = (Trial::new(), 0);
        for _ in 0..100_000 {
            began += play(&mut trial, 1, us(50), us(1)).1;
            if trial.is_awake() {
                trial.silence();
            }
        }
        assert!((20..40).contains(&began), "{began}");
    }

    #[test]
    fn where_no_processor_is_given_back_there_is_nothing_to_gain() {
        let window = Window { took: WINDOW * us(50), turns: WINDOW, requests: WINDOW.into() };
        let (mut trial, mut given_back) = (Trial::new(), 7);
        for _ in 0..1000 {
            // Now and then one is.
            given_back += u64::from(WINDOW / GIVEN_BACK - 1);
            trial.window(&window, || Some(given_back));
            assert!(!trial.is_awake() && !trial.is_trying());
        }
        given_back += u64::from(WINDOW / GIVEN_BACK);
        trial.window(&window, || Some(given_back));
        assert!(trial.is_awake());
    }

    #[test]
    fn who_waits_for_a_device_or_sends_many_at_once_is_not_tried() {
        let mut trial = Trial::new();
        assert_eq!(play(&mut trial, 1000, us(5000), us(1)), (0, 0));
        for requests in [0, 2 * u64::from(WINDOW), 32 * u64::from(WINDOW), u64::MAX] {
            let many = Window { took: us(1000), turns: WINDOW, requests };
            trial.window(&many, || None);
            assert_eq!(trial.now, Now::Asleep);
            // Nor does it go on for them.
            play(&mut trial, 3, us(50), us(10));
            assert!(matches!(trial.now, Now::Awake(..)));
            trial.window(&many, || None);
            assert_eq!(trial.now, Now::Asleep);
        }
    }

    #[test]
    fn only_a_small_guest_that_gives_processors_back_is_kept_awake_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(!gives_back_few(dir.path()));
        for (driver, online, yes) in [
            ("haltpoll\n", "0-1\n", true),
            ("haltpoll\n", "0-3\n", true),
            ("haltpoll\n", "0-4\n", false),
            ("haltpoll\n", "0,2-5,63\n", false),
            ("haltpoll\n", "\n", false),
            ("haltpoll\n", "1-0\n", false),
            ("intel_idle\n", "0-1\n", false),
            ("", "0-1\n", false),
        ] {
            write("cpuidle/current_driver", driver);
            write("online", online);
            assert_eq!(gives_back_few(dir.path()), yes, "{driver} {online}");
        }
        assert!(usage_files(dir.path()).is_empty());
        for (name, usage) in
            [("cpu0/cpuidle/state0", "100"), ("cpu0/cpuidle/state1", "20\n"), ("cpu12/cpuidle/state1", "3\n")]
        {
            write(&format!("{name}/usage"), usage);
        }
        let wakeups = Wakeups::by("/dev/null".as_ref(), usage_files(dir.path()));
        assert_eq!(wakeups.0.unwrap().given_back(), Some(23), "but for polling");
    }

    /// What holds the device open.
    fn holders(device: &Path) -> usize {
        let device = device.canonicalize().unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == device)).count()
    }

    fn until(done: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < limit, "in vain for a minute");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn the_kernel_is_asked_during_short_turns_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("latency");
        std::fs::write(&device, "").unwrap();
        let wakeups = Wakeups::at(&device);
        assert!(!wakeups.are_tried());
        // Turns as short as they come, until two windows are: the machine has other work.
        until(|| {
            (0..3 * WINDOW).any(|_| {
                wakeups.turn(1);
                wakeups.are_tried() && holders(&device) == 1
            })
        });
        assert_eq!(std::fs::read(&device).unwrap(), 0i32.to_ne_bytes());
        // The client has gone (W2).
        until(|| holders(&device) == 0 && !wakeups.are_tried());
        // Requests of many at a time are no turns.
        for _ in 0..1000 {
            wakeups.turn(32);
        }
        assert!(holders(&device) == 0 && !wakeups.are_tried());
    }

    #[test]
    fn where_the_kernel_does_not_let_us_it_is_in_vain() {
        let dir = tempfile::tempdir().unwrap();
        let wakeups = Wakeups::at(&dir.path().join("absent"));
        let failed = || wakeups.0.as_ref().is_some_and(|shared| shared.lock().trial.rest > 0);
        until(|| {
            (0..WINDOW).for_each(|_| wakeups.turn(1));
            failed()
        });
        assert!(!wakeups.are_tried());
    }

    #[test]
    fn by_default_nobody_is_kept_awake() {
        let never = Wakeups::default();
        (0..10 * WINDOW).for_each(|_| never.turn(1));
        assert!(!never.are_tried() && never.told() == (0, 0));
        Wakeups::new(AwakeKind::Off).turn(1);
        assert_eq!(Wakeups::new(AwakeKind::Off).told(), (0, 0));
    }
}
