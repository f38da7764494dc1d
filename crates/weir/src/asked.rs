//! What a running server is asked for: its figures, profiles; and the profiles of `google_perftools_profiles`.

use crate::inquiry::Asker;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::counters::AllCounters;
use weir_core::generation::Generation;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::os_text;
use weir_lua::profile::Profile as LuaProfile;
use weir_profile::Recorder;
use weir_runtime::sampling::FREQUENCY_MAX_HZ;
use weir_runtime::{memory, process, trusted};

/// The generation that is served, and what its workers count.
type Served = (Weak<Generation>, Arc<AllCounters>);

static SERVED: Mutex<Option<Served>> = Mutex::new(None);

/// This one is served from now on.
pub fn serve(generation: &Arc<Generation>, all: &Arc<AllCounters>) {
    let served = (Arc::downgrade(generation), Arc::clone(all));
    *SERVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(served);
}

fn served() -> Result<(Arc<Generation>, Arc<AllCounters>), String> {
    let served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let (generation, all) = served.as_ref().ok_or("nothing is served yet")?;
    let generation = generation.upgrade().ok_or("the server has ended")?;
    Ok((generation, Arc::clone(all)))
}

/// `figures`: all that is counted, as JSON.
pub fn figures() -> Result<Vec<u8>, String> {
    let (generation, all) = served()?;
    Ok(weir_status::document(&generation, &all, false))
}

/// `visitors`: what the zones of `analytics_zone` have counted, as JSON.
pub fn visitors() -> Result<Vec<u8>, String> {
    Ok(weir_status::visitors_document(&served()?.0))
}

/// No profile takes longer.
pub const SECONDS_MAX: u64 = 300;
pub const SECONDS: u64 = 10;
/// Not in step with what happens a hundred times in a second.
pub const FREQUENCY_HZ: u32 = 99;
/// gperftools' own.
const PERFTOOLS_HZ: u32 = 100;
/// After so long it is looked again whether another profile is over.
const TRY_AGAIN: Duration = Duration::from_millis(100);

pub const PROFILE_WORDS: &[&str] = &["seconds", "frequency", "worker", "format"];

/// A number among the words, within bounds.
fn number(asker: &Asker<'_>, name: &str, or: u64, max: u64) -> Result<u64, String> {
    let Some(value) = asker.word(name) else { return Ok(or) };
    let found = value.parse::<u64>().ok().filter(|n| (1..=max).contains(n));
    found.ok_or_else(|| format!("{name} is a number from 1 to {max}"))
}

fn refused(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::AlreadyExists => "a profile is being made already".into(),
        std::io::ErrorKind::NotFound => "there is no such worker".into(),
        std::io::ErrorKind::Unsupported => "profiles are not on this system".into(),
        _ => format!("sampling cannot begin ({})", os_text(e)),
    }
}

/// `profile [seconds=N] [frequency=HZ] [worker=N] [format=pprof|folded]`. It ends early when he goes who asked.
pub fn profile(asker: &Asker<'_>) -> Result<Vec<u8>, String> {
    let seconds = number(asker, "seconds", SECONDS, SECONDS_MAX)?;
    let most = u64::from(FREQUENCY_MAX_HZ);
    let frequency = number(asker, "frequency", u64::from(FREQUENCY_HZ), most)? as u32;
    let only = asker.word("worker").map(|n| n.parse::<usize>());
    let only = only.transpose().map_err(|_| "worker is a number from 0 on".to_owned())?;
    let is_folded = match asker.word("format") {
        None | Some("pprof") => false,
        Some("folded") => true,
        Some(_) => return Err("format is pprof or folded".into()),
    };
    let mut recorder = Recorder::begin(frequency, only).map_err(|e| refused(&e))?;
    let text = format!("a profile of {seconds} s is made, asked for by user {}", asker.uid);
    asker.log.log(LogLevel::Notice, None, text.as_bytes());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        std::thread::sleep(Recorder::LOOK);
        recorder.look();
        if !asker.is_there() {
            return Err("nobody waits for the profile".into());
        }
    }
    let profile = recorder.end();
    let answer = if is_folded { profile.folded() } else { profile.pprof() };
    drop(profile);
    memory::give_back();
    Ok(answer)
}

pub const LUA_PROFILE_WORDS: &[&str] = &["seconds", "frequency", "worker"];

/// `lua-profile [seconds=N] [frequency=HZ] [worker=N]`: folded. It ends early when he goes who asked.
pub fn lua_profile(asker: &Asker<'_>) -> Result<Vec<u8>, String> {
    let seconds = number(asker, "seconds", SECONDS, SECONDS_MAX)?;
    let most = u64::from(FREQUENCY_MAX_HZ);
    let frequency = number(asker, "frequency", u64::from(FREQUENCY_HZ), most)? as u32;
    let only = asker.word("worker").map(|n| n.parse::<usize>());
    let only = only.transpose().map_err(|_| "worker is a number from 0 on".to_owned())?;
    let workers = served()?.1.workers();
    if only.is_some_and(|worker| worker >= workers) {
        return Err("there is no such worker".into());
    }
    let mut profile = LuaProfile::begin(frequency, only).map_err(|e| refused(&e))?;
    let text = format!("a profile of Lua of {seconds} s is made, asked for by user {}", asker.uid);
    asker.log.log(LogLevel::Notice, None, text.as_bytes());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        profile.turn();
        if !asker.is_there() {
            return Err("nobody waits for the profile".into());
        }
    }
    Ok(profile.end())
}

/// A profile from now to the end of the process, or of the directive.
struct Lasting {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

static LASTING: Mutex<Option<Lasting>> = Mutex::new(None);

fn lasting() -> MutexGuard<'static, Option<Lasting>> {
    LASTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a profile for `google_perftools_profiles`, or no more. One to the same file goes on.
pub fn follow(path: Option<&Path>, log: &Arc<ErrorLog>) {
    let mut lasting = lasting();
    if lasting.as_ref().map(|l| l.path.as_path()) == path {
        return;
    }
    if let Some(old) = lasting.take() {
        old.end();
    }
    *lasting = path.and_then(|path| Lasting::begin(path, log));
}

/// Writes what there is, if one is made.
pub fn end() {
    if let Some(lasting) = lasting().take() {
        lasting.end();
    }
}

impl Lasting {
    fn begin(path: &Path, log: &Arc<ErrorLog>) -> Option<Lasting> {
        let ends = Arc::<AtomicBool>::default();
        let (told, to, its_log) = (Arc::clone(&ends), path.to_owned(), Arc::clone(log));
        let run = move || {
            if let Some(recorder) = first(&told, &its_log) {
                record(recorder, &told, &to, &its_log);
            }
        };
        let thread = std::thread::Builder::new().name("profile".into()).spawn(run);
        let thread = thread.inspect_err(|e| alert(log, &format!("its thread: {e}"))).ok()?;
        Some(Lasting { path: path.to_owned(), ends, thread })
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        // It panics if the thread has.
        let _ = self.thread.join();
    }
}

fn alert(log: &ErrorLog, text: &str) {
    let text = format!("google_perftools_profiles: {text}");
    log.log(LogLevel::Alert, None, text.as_bytes());
}

/// Begins, once a profile that somebody has asked for is over.
fn first(ends: &AtomicBool, log: &ErrorLog) -> Option<Recorder> {
    while !ends.load(Ordering::Relaxed) {
        match Recorder::begin(PERFTOOLS_HZ, None) {
            Ok(recorder) => return Some(recorder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                std::thread::sleep(TRY_AGAIN);
            }
            Err(e) => {
                alert(log, &refused(&e));
                return None;
            }
        }
    }
    None
}

fn record(mut recorder: Recorder, ends: &AtomicBool, path: &Path, log: &ErrorLog) {
    while !ends.load(Ordering::Relaxed) {
        std::thread::sleep(Recorder::LOOK);
        recorder.look();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", process::pid()));
    let name = PathBuf::from(name);
    if let Err(e) = trusted::write(&name, &recorder.end().pprof()) {
        alert(log, &format!("open() \"{}\" failed ({})", name.display(), os_text(&e)));
    }
}
