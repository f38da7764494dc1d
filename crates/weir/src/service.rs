//! `weir service`: the program as a service of Windows. It is made and told what to do by the service control manager, and
//! what is gravest goes to the event log too: what nginx would say on standard error, and lines of the error log from
//! crit on.

use crate::load::{Paths, PROGRAM};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use weir_core::logger::{self, LogLevel};
use weir_module::Layout;
use weir_runtime::process;
use weir_runtime::service::{self, Event, New};

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Install,
    Start,
    Stop,
    Reload,
    Reopen,
    Upgrade,
    Remove,
    /// What the system does with a service that is installed.
    Run,
    Help,
}

impl Order {
    pub fn of(word: &[u8]) -> Option<Order> {
        Some(match word {
            b"install" => Order::Install,
            b"start" => Order::Start,
            b"stop" => Order::Stop,
            b"reload" => Order::Reload,
            b"reopen" => Order::Reopen,
            b"upgrade" => Order::Upgrade,
            b"remove" => Order::Remove,
            b"run" => Order::Run,
            b"--help" | b"-h" | b"-?" => Order::Help,
            _ => return None,
        })
    }

    /// Whether it is about a configuration.
    pub fn takes_paths(self) -> bool {
        matches!(self, Order::Install | Order::Run | Order::Help)
    }
}

/// What the command line says.
pub struct Wanted {
    pub order: Order,
    /// The service's name, if it is not the usual.
    pub name: Option<String>,
}

fn help() -> String {
    let name = Layout::here().name;
    format!(
        "\
Usage: {name} service install [-n NAME] [-p prefix] [-c filename] [-e filename] [-g directives]
       {name} service start | stop | reload | reopen | upgrade | remove [-n NAME]

Services are Windows' (elsewhere systemd and its like start a server); all this takes an administrator.

install  makes a service that starts with the machine, with the configuration that is named, and is started again
         when it crashes. It runs as LocalService, who must be able to read the configuration and to write to the
         folders of logs and temporary files; NT SERVICE\\NAME is this service alone:
         icacls C:\\weir\\logs /grant \"NT SERVICE\\{name}:(OI)(CI)M\"
start    starts it, and waits until its configuration is read and it listens
stop     ends it as quit does, and waits; what is not served within 30 seconds is cut off
reload   has it read its configuration again
reopen   has it open its logs again
upgrade  has the program that is there now (rename the old one, and put the new one in its place) take the place of the
         one that runs, with all connections
remove   stops and removes it
-n NAME  the service's name (default: {name})

A configuration that is refused ends the service with code 1 (service-specific). That, and what the error log has of
level emerg, alert and crit, is in the event log too: Windows Logs, Application, source NAME, events 1, 2 and 3.
"
    )
}

pub fn run(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    let name = wanted.name.as_deref().unwrap_or(Layout::here().name);
    let failed = |text: String| format!("{PROGRAM}: {text}\n");
    if wanted.order == Order::Help {
        return put(&help());
    }
    if !service::IS_THERE {
        return Err(failed(elsewhere()));
    }
    let said = match wanted.order {
        Order::Run => return run_as(paths, name),
        Order::Install => install(paths, name),
        Order::Start => service::start(name).map(|()| told(name, "is running")),
        Order::Stop => service::stop(name).map(|()| told(name, "has ended")),
        Order::Reload => service::reload(name).map(|()| told(name, "was told to read its configuration again; if it is refused, the error log and the event log say why")),
        Order::Reopen => service::reopen(name).map(|()| told(name, "was told to open its logs again")),
        Order::Upgrade => service::upgrade(name).map(|()| told(name, "was told to hand over to the program that is there now; the error log says whether it has")),
        Order::Remove => service::remove(name).map(|()| told(name, "is removed")),
        Order::Help => Ok(help()),
    };
    put(&said.map_err(failed)?)
}

fn put(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

fn told(name: &str, what: &str) -> String {
    format!("the service \"{name}\" {what}\n")
}

/// What is to be done where there are no such services.
fn elsewhere() -> String {
    let name = Layout::here().name;
    format!(
        "\"service\" is for Windows; here the system starts servers by files of its own: with systemd \
         \"systemctl enable --now {name}\", by the unit {name}.service that packages bring (the README shows one), and \
         \"systemctl start\", \"stop\" and \"reload\"; elsewhere \"{name}\" starts, \"{name} -s quit\" and \
         \"{name} -s reload\" do the rest"
    )
}

fn install(paths: &Paths, name: &str) -> Result<String, String> {
    if !paths.prefix.is_dir() {
        return Err(format!(
            "\"{}\" is no folder that a service could serve from",
            paths.prefix.display()
        ));
    }
    // Without a folder for it nobody has thought of a configuration: it was begun in the wrong place.
    let conf_dir = paths.conf.as_deref().and_then(Path::parent).filter(|dir| !dir.is_dir());
    if let Some(dir) = conf_dir {
        return Err(format!(
            "there is no \"{}\" with a configuration: -p FOLDER names the folder that has conf, or -c the file",
            dir.display()
        ));
    }
    let new = New {
        name,
        title: &match name == Layout::here().name {
            true => "Weir web server".to_string(),
            false => format!("Weir web server ({name})"),
        },
        description: "Serves HTTP by an nginx.conf, and passes requests on to other servers.",
        words: words(paths, name)?,
    };
    let untold = service::install(&new)?;
    let mut said = told(
        name,
        "is installed; \"service start\" starts it, and so does the machine when it starts",
    );
    let missing = paths.conf.as_ref().filter(|conf| !conf.is_file());
    let missing = missing.map(|conf| format!("there is no \"{}\" yet", conf.display()));
    untold.iter().chain(&missing).for_each(|text| said.push_str(&format!("warning: {text}\n")));
    Ok(said)
}

/// What the service is started with: it begins in a folder of the system's, so that all paths are whole.
fn words(paths: &Paths, name: &str) -> Result<Vec<OsString>, String> {
    let whole = |path: &Path| match std::path::absolute(path) {
        Ok(path) => Ok(path.into_os_string()),
        Err(e) => Err(format!("\"{}\": {e}", path.display())),
    };
    let mut words: Vec<OsString> = service::RUN.map(OsString::from).to_vec();
    words.extend(["-n".into(), name.into(), "-p".into(), whole(&paths.prefix)?]);
    if let Some(conf) = &paths.conf {
        words.extend(["-c".into(), whole(conf)?]);
    }
    if paths.error_log.is_some() {
        let path = paths.error_log_path();
        let is_file = path.as_os_str() != "stderr";
        words.push("-e".into());
        words.push(if is_file { whole(&path)? } else { path.into_os_string() });
    }
    if !paths.globals.is_empty() {
        let text = String::from_utf8_lossy(&paths.globals).into_owned();
        words.extend(["-g".into(), text.into()]);
    }
    Ok(words)
}

/// Serves, as the system's service of that name.
fn run_as(paths: &Paths, name: &str) -> Result<(), String> {
    let paths = paths.clone();
    if process::is_started() {
        service::speak_as(name);
        return crate::serve(&paths);
    }
    service::run(
        name,
        Box::new(move || {
            let done = crate::serve(&paths);
            if let Err(text) = &done {
                crate::say(text);
            }
            logger::settle();
            logger::finish();
            u8::from(done.is_err())
        }),
    )
    .map_err(|text| format!("{PROGRAM}: {text}\n"))
}

/// It serves: what is grave is in the error log from now on, and is overheard there.
pub fn is_ready() {
    if service::is_one() {
        logger::alarm(|level, text| {
            event_of(level).into_iter().for_each(|e| service::report(e, text))
        });
        service::is_ready();
    }
}

/// Standard error is nobody's where a service says something.
pub fn said(text: &str) {
    if service::is_one() {
        event_in(text).into_iter().for_each(|e| service::report(e, text.as_bytes()));
    }
}

fn event_of(level: LogLevel) -> Option<Event> {
    match level {
        LogLevel::Emerg => Some(Event::Emerg),
        LogLevel::Alert => Some(Event::Alert),
        LogLevel::Crit => Some(Event::Crit),
        _ => None,
    }
}

/// The gravest that a text for the terminal says; an error without a level is one of the command line.
fn event_in(text: &str) -> Option<Event> {
    let levels = LogLevel::NAMES.iter().filter(|(_, level)| *level <= LogLevel::Crit);
    let is_there = |name: &str| text.contains(&format!("{PROGRAM}: [{name}] "));
    levels.filter(|(name, _)| is_there(name)).find_map(|(_, level)| event_of(*level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_gravest_level_that_they_name() {
        assert_eq!(event_in("nginx: [emerg] no \"events\""), Some(Event::Emerg));
        assert_eq!(event_in("nginx: [warn] a [emerg] b\nnginx: [crit] c\n"), Some(Event::Crit));
        assert_eq!(event_in("nginx: [warn] a\n"), None);
        assert_eq!(event_in("Weir is at http://127.0.0.1:8080/"), None);
    }

    #[test]
    fn a_service_is_told_whole_paths() {
        let paths = Paths {
            prefix: "some/./prefix".into(),
            conf: Some("x.conf".into()),
            error_log: Some("logs/e.log".into()),
            globals: b"user \"a b\";".to_vec(),
        };
        let words = words(&paths, "we ir").expect("words");
        assert_eq!(words[..4], ["service", "run", "-n", "we ir"]);
        let here = std::env::current_dir().expect("a directory");
        let whole = |name: &str| here.join(name).into_os_string();
        assert_eq!(words[4..6], ["-p".into(), whole("some/prefix")]);
        assert_eq!(words[6..8], ["-c".into(), whole("x.conf")]);
        assert_eq!(words[8..10], ["-e".into(), whole("some/prefix/logs/e.log")]);
        assert_eq!(words[10..], ["-g", "user \"a b\";"]);
        let stderr = Paths { error_log: Some("stderr".into()), globals: Vec::new(), ..paths };
        let words = super::words(&stderr, "weir").expect("words");
        assert_eq!(words[8..], ["-e", "stderr"]);
    }
}
