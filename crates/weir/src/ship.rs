//! `weir ship`: how the receivers of a running server do, and what a receiver needs to make sense of events.

use crate::load::{self, Paths};
use crate::{doctor, inquiry};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use weir_doctor::Receiver;
use weir_module::{Layout, Mode};

/// What the command line says.
pub enum Wanted {
    Help,
    Status { json: bool },
    Install { name: String, dashboards: Option<String> },
}

pub fn help() -> Result<(), String> {
    let name = Layout::here().name;
    let text = format!(
        "\
Usage: {name} ship status [--json] [-p prefix] [-c filename] [-g directives]
       {name} ship install NAME [--dashboards URL] [-p prefix] [-c filename] [-g directives]

status   says of each receiver of the running server what was sent, what waits, what was lost, and the
         last error. The server is found by its pid file; root and its own user may ask.
install  puts the index templates for events in place at the receiver NAME of the configuration
         (Elasticsearch, OpenSearch), with the credentials that stand there. What is there is replaced.
         --dashboards URL  also the dashboards, at Kibana or OpenSearch Dashboards
"
    );
    put(&text)
}

fn put(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

pub fn run(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    let done = match wanted {
        Wanted::Help => return help(),
        Wanted::Status { json } => status(paths, *json),
        Wanted::Install { name, dashboards } => install(paths, name, dashboards.as_deref()),
    };
    put(&done.map_err(|e| format!("{}: {e}\n", load::PROGRAM))?)
}

fn status(paths: &Paths, json: bool) -> Result<String, String> {
    let pid_file =
        doctor::pid_file(paths).ok_or("the configuration has no pid file to find the server by")?;
    let form = if json { "json" } else { "text" };
    let line = format!("ship form={form}");
    let answer = inquiry::ask(&inquiry::path_of(&pid_file), &line, Duration::ZERO)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What the server of that pid file says of its receivers.
pub fn receivers(pid_file: &Path) -> Result<Vec<Receiver>, String> {
    let answer = inquiry::ask(&inquiry::path_of(pid_file), "ship form=json", Duration::ZERO)?;
    let told: Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
    let all = told.as_object().ok_or("the answer is no object")?;
    Ok(all.iter().map(|(name, figures)| receiver(name, figures)).collect())
}

fn receiver(name: &str, figures: &Value) -> Receiver {
    let number = |name: &str| figures.get(name).and_then(Value::as_u64).unwrap_or(0);
    let error = figures.get("last_error").and_then(Value::as_str);
    Receiver {
        name: name.to_owned(),
        queued_events: number("queued_events"),
        queued_bytes: number("queued_bytes"),
        max_bytes: number("max_bytes"),
        dropped: number("events_dropped"),
        refused: number("events_refused"),
        lost_bytes: number("lost_bytes"),
        failing_ms: number("failing_for"),
        last_error: error.unwrap_or_default().to_owned(),
    }
}

/// The answer of the server that is asked.
pub fn answer(asker: &inquiry::Asker<'_>) -> Result<Vec<u8>, String> {
    match asker.word("form") {
        Some("json") => Ok(weir_ship::status_json()),
        _ => Ok(weir_ship::status_text().into_bytes()),
    }
}

fn install(paths: &Paths, name: &str, dashboards: Option<&str>) -> Result<String, String> {
    let loaded = load::load(paths, Mode::Test).map_err(|refused| refused.text)?;
    weir_ship::install(&loaded.into_generation(), name, dashboards)
}
