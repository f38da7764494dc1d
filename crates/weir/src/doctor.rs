//! `weir doctor`: the configuration as `-t` sees it, then what the machine says of it.

use crate::load::{self, Paths};
use crate::{inquiry, ship};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;
use weir_doctor::{Busy, Case, Conf, Finding, Judgement, Machine, Places, Running, Told};
use weir_module::{Layout, Mode};
use weir_runtime::paths::join;

pub fn help() -> Result<(), String> {
    let mut text = format!(
        "\
Usage: {} doctor [--json] [-p prefix] [-c filename] [-g directives]

Says whether this machine is set up for the configuration, and how the server does that runs by it
(found by its pid file). Each line has a figure; below it stands why it matters for this configuration
and what mends it. Nothing is changed. What this user may not read is said as \"unknown\".

  --json        : one object, with the same findings
  -p, -c, -g    : as for serving

Exit status: 0 nothing to mend, 1 warnings, 2 errors (also: the configuration is refused)

It looks at:
",
        Layout::here().name
    );
    let mut area = "";
    for check in weir_doctor::checks::CHECKS {
        if check.area != area {
            area = check.area;
            text.push_str(&format!("\n  {area}\n"));
        }
        text.push_str(&format!("    {:<22} {}\n", check.name, check.reads));
    }
    put(&text)
}

fn put(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

/// Tells all, and gives the exit status.
pub fn run(paths: &Paths, json: bool) -> Result<u8, String> {
    let mut all = vec![of_configuration(paths)];
    let conf = Conf::of(&load::read(paths), &places(paths));
    let machine = Machine;
    let running = match &conf.pid {
        Some(pid) => Running::find(&machine, pid).unwrap_or_else(|e| {
            let finding = Finding::unknown(pid.display(), format!("the pid file: {e}"));
            all.push(Judgement { area: "configuration", check: "pid file", finding });
            None
        }),
        None => None,
    };
    let told = match (&running, &conf.pid) {
        (Some(_), Some(pid)) => told(pid).map(Some),
        _ => Ok(None),
    };
    // One that does not answer is asked once.
    let receivers = match (&told, &conf.pid) {
        _ if conf.ships.is_empty() => Ok(Vec::new()),
        (Err(why), _) => Err(why.clone()),
        (Ok(Some(_)), Some(pid)) => ship::receivers(pid),
        _ => Ok(Vec::new()),
    };
    all.extend(weir_doctor::examine(&Case {
        conf: &conf,
        system: &machine,
        running: running.as_ref(),
        receivers: receivers.as_deref().map_err(String::as_str),
        told: told.as_ref().map(Option::as_ref).map_err(String::as_str),
    }));
    let name = paths.conf_name();
    let told = match json {
        true => weir_doctor::json(&all, &name),
        false => {
            let out = std::io::stdout();
            let is_coloured = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            weir_doctor::text(&all, &format!("{} doctor: {name}", Layout::here().name), is_coloured)
        }
    };
    put(&told)?;
    Ok(weir_doctor::exit_status(&all))
}

/// How long workers are looked at.
const MOMENT: Duration = Duration::from_millis(500);

/// What the server of that pid file says of itself.
fn told(pid_file: &Path) -> Result<Told, String> {
    let ask = || -> Result<Value, String> {
        let answer = inquiry::ask(&inquiry::path_of(pid_file), "figures", Duration::ZERO)?;
        serde_json::from_slice(&answer).map_err(|e| e.to_string())
    };
    let before = ask()?;
    std::thread::sleep(MOMENT);
    let now = ask()?;
    let mut told = Told::default();
    for block in ["http", "stream"] {
        let all = now.pointer(&format!("/{block}/upstreams")).and_then(Value::as_object);
        told.upstreams.extend(all.into_iter().flatten().filter_map(|(name, upstream)| {
            Some((name.clone(), upstream.get("state")?.as_str()?.to_owned()))
        }));
    }
    let micros = |of: &Value| of.get("now_us").and_then(Value::as_u64).unwrap_or(0);
    let ms = (micros(&now).saturating_sub(micros(&before)) / 1000).max(1);
    let workers = |of: &Value| -> Vec<(String, u64, u64)> {
        let all = of.get("workers").and_then(Value::as_array).into_iter().flatten();
        let one = |w: &Value| {
            let number = |name| w.get(name).and_then(Value::as_u64);
            Some((
                w.get("id")?.to_string(),
                number("busy_time")?,
                number("queued_time").unwrap_or(0),
            ))
        };
        all.filter_map(one).collect()
    };
    let earlier = workers(&before);
    let share = |now: u64, was: u64| (now.saturating_sub(was) * 100 / ms).min(100);
    told.workers = workers(&now)
        .into_iter()
        .filter_map(|(id, busy, queued)| {
            let (_, was_busy, was_queued) = earlier.iter().find(|(other, ..)| *other == id)?;
            Some(Busy { id, works: share(busy, *was_busy), waits: share(queued, *was_queued) })
        })
        .collect();
    Ok(told)
}

/// Whether it would be served at all.
fn of_configuration(paths: &Paths) -> Judgement {
    let name = paths.conf_name();
    let finding = match load::look(paths, Mode::Test) {
        Ok(loaded) if loaded.warnings.is_empty() => Finding::ok(name, ""),
        Ok(loaded) => {
            let count = loaded.warnings.len();
            let why = loaded.warnings[0].line.clone();
            Finding::note(format!("{name}: {count} warnings"), why)
                .mend("weir -t shows all of them")
        }
        // As this user; what serves it may read more.
        Err(e) if e.text.contains("Permission denied") => Finding::unknown(name, e.line),
        Err(e) => Finding::error(name, e.line, "weir -t shows the place"),
    };
    Judgement { area: "configuration", check: "test", finding }
}

/// The pid file of the configuration, whether or not it may be served as this user.
pub fn pid_file(paths: &Paths) -> Option<std::path::PathBuf> {
    Conf::of(&load::read(paths), &places(paths)).pid
}

fn places(paths: &Paths) -> Places {
    let here = Layout::here();
    let temp = |what: &str| (what.to_owned(), join(&paths.prefix, here.temp_path(Path::new(what))));
    Places {
        prefix: paths.prefix.clone(),
        conf_prefix: paths.conf_path().parent().map(Path::to_path_buf).unwrap_or_default(),
        pid: paths.conf.as_ref().map(|_| join(&paths.prefix, here.pid_path)),
        error_log: paths.error_log_path(),
        access_log: match &paths.conf {
            Some(_) => join(&paths.prefix, here.http_log_path),
            None => std::path::PathBuf::new(),
        },
        temp: ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(temp).to_vec(),
    }
}
