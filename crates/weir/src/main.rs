//! The weir program: nginx's command line, on Weir's engine.

mod agent;
mod asked;
mod begun;
mod changes;
mod cli;
mod control;
mod dicts;
mod disk;
mod doctor;
mod embedded;
mod figures;
mod globals;
mod heirs;
mod help;
mod inquiry;
mod kept;
mod limits;
mod load;
mod loaded;
mod logs;
mod master;
mod missing;
mod modules;
mod orphan;
mod panics;
mod peers;
mod place;
mod profile;
mod protocols;
mod quiet;
mod retired;
mod script;
mod service;
mod serving;
mod shares;
mod ship;
mod sockets;
mod stands;
mod top;
mod trace;
mod upgrade;
mod watch;
mod workers;

use crate::cli::{Action, Args};
use crate::globals::Global;
use crate::load::{Loaded, Paths, Refused, Warning};
use crate::sockets::Sockets;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use weir_conf::dump;
use weir_core::generation::Generation;
use weir_core::logger::{could_open, ErrorLog, LogLevel, LogSink};
use weir_module::{Layout, Mode};
use weir_runtime::sockets::AsRawFd;
use weir_runtime::{files, paths};

/// What nginx says when it gives up to listen.
const STILL: &str = "still could not bind()";

#[global_allocator]
static ALLOCATOR: weir_runtime::memory::Memory = weir_runtime::memory::Memory;

fn main() -> ExitCode {
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_default();
    if paths::HAS_COMMON_FOLDERS {
        Layout::choose(Path::new(&name));
    }
    // A link of that name runs scripts, as OpenResty's program does.
    let is_resty = Path::new(&name).file_name().is_some_and(|name| name == "resty");
    let command = is_resty.then(|| b"lua".to_vec());
    let words = given.map(|a| paths::bytes(&a).to_vec());
    let args = match Args::parse(command.into_iter().chain(words)) {
        Ok(a) => a,
        Err(e) => return fail(&format!("{}: {e}\n", load::PROGRAM)),
    };
    let done = run(&args);
    weir_core::logger::settle();
    weir_core::logger::finish();
    match done {
        Ok(status) => ExitCode::from(status),
        Err(text) => fail(&text),
    }
}

fn fail(text: &str) -> ExitCode {
    say(text);
    ExitCode::FAILURE
}

/// Standard error is where nginx says everything; a closed one is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
    service::said(text);
}

fn emerg(text: &str) -> String {
    format!("{}: [emerg] {text}\n", load::PROGRAM)
}

/// What it exits with.
fn run(args: &Args) -> Result<u8, String> {
    match &args.action {
        Action::Help => say(&cli::help()),
        Action::Version => say(&cli::version()),
        Action::FullVersion => say(&cli::full_version()),
        Action::Analyze(words) => return weir_analyze::run(words.clone(), &disk::Disk).map(|()| 0),
        Action::Directive(name) => help::directive(name.as_deref())?,
        Action::Signal(name) => send_signal(&args.paths, name)?,
        Action::Test { dump } => test(args, *dump)?,
        Action::Serve => serve(&args.paths)?,
        Action::Doctor { json } => return doctor::run(&args.paths, *json),
        Action::DoctorHelp => doctor::help()?,
        Action::Profile(wanted) => profile::run(&args.paths, wanted)?,
        Action::Ship(wanted) => ship::run(&args.paths, wanted)?,
        Action::ProfileHelp => profile::help()?,
        Action::Trace(wanted) => trace::run(&args.paths, wanted)?,
        Action::TraceHelp => trace::help()?,
        Action::Top(wanted) => return top::run(&args.paths, wanted),
        Action::TopHelp => top::help()?,
        Action::Service(wanted) => service::run(&args.paths, wanted)?,
        Action::Lua(wanted) => script::run(wanted)?,
        Action::LuaHelp => script::help()?,
    }
    Ok(0)
}

fn test(args: &Args, with_dump: bool) -> Result<(), String> {
    let paths = &args.paths;
    let alert = paths.check_error_log(Mode::Test);
    alert.iter().for_each(|text| say(text));
    let name = paths.conf_name();
    let failed =
        |text: &str| format!("{text}{}: configuration file {name} test failed\n", load::PROGRAM);
    let loaded = load::load(paths, Mode::Test).map_err(|e| failed(&e.text))?;
    let is_told = |w: &&Warning| !args.quiet || w.level <= LogLevel::Warn;
    loaded.warnings.iter().filter(is_told).for_each(|w| say(&w.text));
    let is_warned = alert.is_some() || loaded.warnings.iter().any(|w| w.level <= LogLevel::Warn);
    if args.strict && is_warned {
        return Err(failed(""));
    }
    if !args.quiet {
        say(&format!("{}: the configuration file {name} syntax is ok\n", load::PROGRAM));
    }
    if let Err(e) = check_pid_file(paths, &loaded.generation) {
        return Err(failed(&emerg(&e)));
    }
    if !args.quiet {
        say(&format!("{}: configuration file {name} test is successful\n", load::PROGRAM));
    }
    if with_dump {
        std::io::stdout().write_all(&dump(&loaded.sources)).map_err(|e| emerg(&e.to_string()))?;
    }
    Ok(())
}

/// `-t` also tells whether there is a place for the pid file; it writes none.
fn check_pid_file(paths: &Paths, gen: &Generation) -> Result<(), String> {
    let Some(path) = paths.pid_path(gen.global.get::<Global>()) else { return Ok(()) };
    could_open(&path).map_err(|e| open_failed(&path, &e))
}

/// Who wants to know why there was no upgrade looks into the error log.
fn write_pid(path: &Path, loaded: &Loaded, inherited: bool) -> Result<(), String> {
    control::write_pid(path).map_err(|e| {
        if inherited {
            loaded.generation.error_log.log(LogLevel::Emerg, None, e.as_bytes());
        }
        emerg(&e)
    })
}

/// What `ps` shows of this process.
fn title(role: &str) {
    weir_runtime::title::set(&format!("{}: {role}", Layout::here().name));
}

/// nginx's title of a master: with the command line.
fn master_title() {
    let words: Vec<_> =
        weir_runtime::title::arguments().iter().map(|a| a.to_string_lossy()).collect();
    title(&format!("master process {}", words.join(" ")));
}

fn open_failed(path: &std::path::Path, e: &std::io::Error) -> String {
    format!("open() \"{}\" failed ({})", path.display(), weir_core::os_text(e))
}

fn serve(paths: &Paths) -> Result<(), String> {
    use weir_runtime::{listen, process, signals, title};
    title::prepare();
    if let Some(link) = process::own_link() {
        return begun::serve(paths, &link).map_err(|e| emerg(&e));
    }
    let inherited = upgrade::take_sockets();
    paths.check_error_log(Mode::Serve).iter().for_each(|text| say(text));
    let loaded = match load::load(paths, Mode::Serve) {
        Ok(l) => l,
        Err(Refused { text, line, warnings }) => {
            log_start(paths, &warnings, Some(&line));
            return Err(text);
        }
    };
    loaded.warnings.iter().for_each(|w| say(&w.text));
    log_start(paths, &loaded.warnings, None);
    panics::log_to(&loaded.generation.error_log);
    let waiter =
        signals::Waiter::new().map_err(|e| emerg(&format!("signals cannot be heard: {e}")))?;
    let global = loaded.generation.global.get::<Global>();
    let orphan = match inherited {
        true => None,
        false => master::find_orphan(paths, &loaded.generation),
    };
    let sockets = Sockets::default()
        .adopt(&loaded.generation, global.workers(), Vec::new())
        .map_err(|mut failed| {
            failed.push(STILL.to_string());
            let log = &loaded.generation.error_log;
            failed.iter().for_each(|text| log.log(LogLevel::Emerg, None, text.as_bytes()));
            failed.iter().map(|text| emerg(text)).collect::<String>()
        })?;
    listen::drop_inherited();
    if paths.conf.is_none() {
        announce(&sockets);
    }
    let daemon = *global.daemon.as_option().unwrap_or(&true);
    if daemon && !inherited {
        process::daemonize().map_err(|e| emerg(&format!("daemon failed: {e}")))?;
    }
    if let Some(path) = paths.pid_path(global) {
        write_pid(&path, &loaded, inherited)?;
        inquiry::open(&path, &loaded.generation.error_log);
    } else {
        // Without a configuration there is no pid file; it may be asked all the same.
        let path = paths.prefix.join(format!("weir-{}", process::pid()));
        inquiry::open(&path, &loaded.generation.error_log);
    }
    start_notice(&loaded);
    if daemon {
        leave_terminal(&loaded.generation.error_log);
    }
    orphan.iter().for_each(orphan::Found::confirm);
    let may_have_master = *global.master_process.as_option().unwrap_or(&true);
    if may_have_master {
        master_title();
    }
    let with_master = process::may_be_master() && may_have_master;
    let done = match with_master {
        true => master::master(paths, loaded, sockets, &waiter),
        false => {
            apply_limits(global, &loaded.generation.error_log);
            control::single(paths, loaded, sockets, &waiter)
        }
    };
    done.map_err(|e| emerg(&e))
}

/// A daemon keeps nothing open of who started it: a shell that reads what it says would wait for
/// ever. What is still said there (where a panic came from, if that was asked for) goes to the error log.
fn leave_terminal(log: &ErrorLog) {
    if log.sinks.iter().any(|(sink, _)| matches!(sink, LogSink::Stderr)) {
        return;
    }
    // A program's would never end, as this process keeps it whatever the configuration says.
    let of_log = log.sinks.iter().find_map(|(sink, _)| match sink {
        LogSink::File(file) if !file.is_program() => Some(file.handle()),
        _ => None,
    });
    let nowhere = || std::fs::File::options().write(true).open(files::NOWHERE).ok().map(Arc::new);
    if let Some(file) = of_log.or_else(nowhere) {
        weir_runtime::process::redirect_stderr(file.as_raw_fd());
    }
}

fn start_notice(loaded: &Loaded) {
    let (method, version) = (weir_runtime::event_loop::METHOD, weir_http::output::SERVER_VERSION);
    let text = format!("using the \"{method}\" event method; {version}");
    loaded.generation.error_log.log(LogLevel::Notice, None, text.as_bytes());
}

fn announce(sockets: &Sockets) {
    for l in sockets.all() {
        say(&format!(
            "Weir is at http://{}/ (its embedded default; give it a configuration with -c FILE)\n",
            l.addr
        ));
    }
}

/// What is said of the configuration at the start is told in a log as well as on the terminal. As
/// with nginx that is the log of `-e` or of the build: the configuration's is not yet in force.
fn log_start(paths: &Paths, warnings: &[Warning], refusal: Option<&str>) {
    let path = paths.error_log_path();
    let nothing = warnings.is_empty() && refusal.is_none();
    if nothing || paths.conf.is_none() || path.as_os_str() == "stderr" {
        return;
    }
    let Ok(file) = weir_core::logger::log_file(&path) else { return };
    let log = ErrorLog { sinks: vec![(LogSink::File(file), LogLevel::Notice)] };
    warnings.iter().for_each(|w| log.log(w.level, None, w.line.as_bytes()));
    refusal.iter().for_each(|line| log.log(LogLevel::Emerg, None, line.as_bytes()));
}

/// Limits, environment and directory of the serving process.
fn apply_limits(global: &Global, log: &ErrorLog) {
    limits::apply(0, global, log);
    let warn = |what: &str, e: std::io::Error| {
        log.log(LogLevel::Alert, None, format!("{what} failed: {e}").as_bytes());
    };
    if let Some(dir) = global.working_directory.as_option() {
        std::env::set_current_dir(dir).unwrap_or_else(|e| warn("chdir()", e));
    }
    set_environment(&global.env);
}

/// As in nginx what is not named is gone: programs that are started, and scripts, see no more. What Lua states look for
/// when they begin stays, and what Windows itself wants of a program that is started.
fn set_environment(named: &[(String, Option<String>)]) {
    const KEPT: [&str; 2] = ["TZ", "LUA_"];
    const WINDOWS: [&str; 6] = ["ComSpec", "SystemDrive", "SystemRoot", "TEMP", "TMP", "windir"];
    // There names of variables do not regard case either.
    const IS_WINDOWS: bool = weir_runtime::paths::IGNORES_CASE;
    let is =
        |known: &str, name: &str| known == name || IS_WINDOWS && known.eq_ignore_ascii_case(name);
    for (name, _) in std::env::vars_os() {
        let is_kept = name.to_str().is_some_and(|name| {
            let is_own = KEPT.iter().any(|kept| match kept.strip_suffix('_') {
                Some(_) => name.starts_with(kept),
                None => name == *kept,
            });
            let is_systems = IS_WINDOWS && WINDOWS.iter().any(|known| is(known, name));
            is_own || is_systems || named.iter().any(|(known, _)| is(known, name))
        });
        if !is_kept {
            weir_runtime::process::remove_variable(&name);
        }
    }
    for (name, value) in named {
        if let Some(value) = value {
            weir_runtime::process::set_variable(name, value);
        }
    }
}

fn send_signal(paths: &Paths, name: &str) -> Result<(), String> {
    use weir_runtime::signals::{self, Signal};
    let signal = match name {
        "stop" => Signal::Term,
        "quit" => Signal::Quit,
        "reload" => Signal::Hup,
        "reopen" => Signal::Usr1,
        "upgrade" => Signal::Usr2,
        _ => return Err(format!("{}: invalid option: \"-s {name}\"\n", load::PROGRAM)),
    };
    // Code of a configuration is not to run for that: it may be what hangs.
    let loaded = load::look(paths, Mode::Test).map_err(|e| e.text)?;
    let path = paths.pid_path(loaded.generation.global.get::<Global>());
    let path = path.ok_or_else(|| emerg("there is no pid file to find the process by"))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("{}: [error] {}\n", load::PROGRAM, open_failed(&path, &e)))?;
    // A negative number is a group of processes, and none is this one's.
    let pid = text.trim().parse().ok().filter(|pid: &i32| *pid > 0).ok_or_else(|| {
        format!(
            "{}: [error] invalid PID number \"{}\" in \"{}\"\n",
            load::PROGRAM,
            text.trim(),
            path.display()
        )
    })?;
    let send = |signal: Signal| {
        signals::send(pid, signal).map_err(|e| {
            format!(
                "{}: [alert] {} failed ({})\n",
                load::PROGRAM,
                signals::call(pid, signal),
                weir_core::os_text(&e)
            )
        })
    };
    if signal != Signal::Usr2 {
        return send(signal);
    }
    upgrade::may_begin(&path).map_err(|text| emerg(&text))?;
    send(signal)?;
    let new = upgrade::wait(&path, pid).map_err(|text| emerg(&text))?;
    send(Signal::Quit)?;
    say(&format!(
        "{}: process {new} has taken the place of {pid}, which ends with its last request\n",
        load::PROGRAM
    ));
    Ok(())
}
