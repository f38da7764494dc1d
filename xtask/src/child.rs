//! Other programs, run within a time.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub fn quiet(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Runs a command within a time, and hands every line that it prints to `see`.
pub fn watched(
    command: &mut Command,
    limit: Duration,
    mut see: impl FnMut(&str),
) -> Result<(), String> {
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|e| format!("cannot run: {e}"))?;
    let lines = lines_of(&mut child);
    let end = Instant::now() + limit;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => see(&line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill_tree(&mut child);
                return Err(format!("not done after {} s", limit.as_secs()));
            }
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(e) => Err(e.to_string()),
    }
}

fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

/// Ends a child and what it started, as far as the system tells.
fn kill_tree(child: &mut Child) {
    let mut pids = vec![child.id().to_string()];
    let mut at = 0;
    while let Some(pid) = pids.get(at).cloned() {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        pids.extend(children.split_whitespace().map(str::to_owned));
        at += 1;
    }
    for pid in &pids[1..] {
        let _ = quiet(Command::new("kill").args(["-KILL", pid]));
    }
    let _ = child.kill();
    let _ = child.wait();
}
