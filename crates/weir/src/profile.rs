//! `weir profile`: asks a running server for a profile of its workers, and writes it.

use crate::asked::{FREQUENCY_HZ, SECONDS, SECONDS_MAX};
use crate::load::Paths;
use crate::{doctor, inquiry};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_module::Layout;
use weir_profile::flame;
use weir_runtime::inquiry as control;
use weir_runtime::sampling::FREQUENCY_MAX_HZ;

/// What the command line says.
pub struct Wanted {
    pub pid: Option<u32>,
    pub seconds: u64,
    pub frequency_hz: u64,
    pub worker: Option<u64>,
    /// Of functions of Lua's, and not of the program's.
    pub is_of_lua: bool,
    pub out: PathBuf,
}

impl Default for Wanted {
    fn default() -> Wanted {
        let out = PathBuf::from("weir-profile.svg");
        Wanted {
            pid: None,
            seconds: SECONDS,
            frequency_hz: u64::from(FREQUENCY_HZ),
            worker: None,
            is_of_lua: false,
            out,
        }
    }
}

pub fn help() -> Result<(), String> {
    let name = Layout::here().name;
    let text = format!(
        "\
Usage: {name} profile [--lua] [-p PID | -c filename] [--seconds N] [--frequency HZ] [--worker N] [-o FILE]

Shows where the workers of a running server spend the processor's time. The server is found by its
configuration's pid file, or by the number of its process, and asked through PIDFILE.control: that
only root and the user who started the server may do. It serves on meanwhile. Time that workers wait does not
count: an idle server has no samples. The profile ends early when this program is ended.

  --lua         : where their Lua code spends its time, by functions and lines of Lua's: while code runs, also
                  in calls that block, and not while it waits; *.svg, *.txt or *.folded
  -c filename   : configuration of the server (-p prefix and -g as for serving)
  -p PID        : number of its process
  --seconds N   : how long, up to {SECONDS_MAX} (default: {SECONDS})
  --frequency N : samples in a second of processor time, up to {FREQUENCY_MAX_HZ} (default: {FREQUENCY_HZ});
                  where the system looks less often (each 4 ms, say), one counts for all that were due
  --worker N    : only this worker, from 0 on
  -o FILE       : what to write (default: weir-profile.svg)
                  *.svg a flame graph, *.txt or *.folded a line for each stack,
                  everything else pprof's format (go tool pprof FILE)
"
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Svg,
    Folded,
    Pprof,
}

fn form_of(out: &Path) -> Form {
    match out.extension().and_then(|e| e.to_str()) {
        Some("svg") => Form::Svg,
        Some("txt" | "folded") => Form::Folded,
        _ => Form::Pprof,
    }
}

pub fn run(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    make(paths, wanted).map_err(|e| format!("{}: {e}\n", crate::load::PROGRAM))
}

fn make(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    let form = form_of(&wanted.out);
    let kind = match (wanted.is_of_lua, form) {
        (true, Form::Pprof) => {
            return Err(
                "a profile of Lua is a flame graph (-o FILE.svg) or text (-o FILE.txt)".into()
            );
        }
        (true, _) => "lua-profile",
        (false, Form::Pprof) => "profile format=pprof",
        (false, _) => "profile format=folded",
    };
    let socket = socket(paths, wanted.pid)?;
    let mut line = format!("{kind} seconds={} frequency={}", wanted.seconds, wanted.frequency_hz);
    if let Some(worker) = wanted.worker {
        line.push_str(&format!(" worker={worker}"));
    }
    let answer = inquiry::ask(&socket, &line, Duration::from_secs(wanted.seconds))?;
    let text = match form {
        Form::Pprof => answer,
        _ if answer.is_empty() && wanted.is_of_lua => {
            return Err("there are no samples: no Lua code has run".into());
        }
        _ if answer.is_empty() => {
            return Err("there are no samples: the workers have used no processor time".into());
        }
        Form::Folded => answer,
        Form::Svg => {
            let of = if wanted.is_of_lua { "Lua" } else { "processor time" };
            let title = format!("{} s at {} Hz of {of}", wanted.seconds, wanted.frequency_hz);
            let svg = flame::svg(&String::from_utf8_lossy(&answer), &title);
            svg.ok_or("the answer is no profile")?.into_bytes()
        }
    };
    let shown = wanted.out.display();
    std::fs::write(&wanted.out, text)
        .map_err(|e| format!("open() \"{shown}\" failed ({})", weir_core::os_text(&e)))?;
    crate::say(&format!("the profile is in {shown}\n"));
    Ok(())
}

/// Where a server is asked, by the number of its process or its configuration's pid file.
pub fn socket(paths: &Paths, pid: Option<u32>) -> Result<PathBuf, String> {
    match pid {
        Some(pid) => socket_of(pid),
        None => {
            let pid_file = doctor::pid_file(paths)
                .ok_or("the configuration has no pid file to find the server by")?;
            Ok(inquiry::path_of(&pid_file))
        }
    }
}

/// The socket that a process is asked by.
fn socket_of(pid: u32) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| {
        format!("process {pid} cannot be looked at ({})", weir_core::os_text(&e))
    };
    let found = control::of_process(pid, inquiry::SUFFIX).map_err(failed)?;
    found.ok_or_else(|| format!("process {pid} is no Weir that can be asked"))
}
