//! The event log: the program as a source of events, which the registry knows, and the events.

use super::wide;
use crate::service::words::{event_text, Flow};
use crate::service::Event;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_SUCCESS, HANDLE};
use windows_sys::Win32::System::EventLog::{
    RegisterEventSourceW, ReportEventW, EVENTLOG_ERROR_TYPE,
};
use windows_sys::Win32::System::Registry::{
    RegCloseKey, RegCreateKeyExW, RegDeleteKeyW, RegGetValueW, RegSetValueExW, HKEY,
    HKEY_LOCAL_MACHINE, KEY_WRITE, REG_CREATED_NEW_KEY, REG_DWORD, REG_EXPAND_SZ,
    REG_OPTION_NON_VOLATILE, RRF_RT_REG_DWORD,
};

const SOURCES: &str = "SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application";
/// A program of the system's that has, for each number up to 1,000, the words "%1": texts are shown as they are.
const MESSAGES: &str = "%SystemRoot%\\System32\\EventCreate.exe";
/// Marks a source as this program's.
const MARK: &str = "Weir";
/// Errors, warnings, notices.
const TYPES: u32 = 7;

/// What may be written in a minute.
const MOST: u32 = 30;
const WHILE: Duration = Duration::from_secs(60);

fn key(name: &str) -> Vec<u16> {
    wide(&format!("{SOURCES}\\{name}"))
}

fn failed(name: &str, code: u32) -> String {
    let e = io::Error::from_raw_os_error(code.cast_signed());
    format!("the source of events \"{name}\": {e}")
}

fn is_marked(key: &[u16]) -> bool {
    let mark = wide(MARK);
    let (no_type, no_value) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: both names end in a zero; whether there is a value is all that is asked.
    let found = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            mark.as_ptr(),
            RRF_RT_REG_DWORD,
            no_type,
            no_value,
            std::ptr::null_mut(),
        )
    };
    found == ERROR_SUCCESS
}

/// Makes the program a source of events.
pub fn add(name: &str) -> Result<(), String> {
    let key = key(name);
    let mut open: HKEY = std::ptr::null_mut();
    let mut how = 0;
    // SAFETY: the name ends in a zero, and there is room for the answers.
    let made = unsafe {
        RegCreateKeyExW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            0,
            std::ptr::null(),
            REG_OPTION_NON_VOLATILE,
            KEY_WRITE,
            std::ptr::null(),
            &mut open,
            &mut how,
        )
    };
    if made != ERROR_SUCCESS {
        return Err(failed(name, made));
    }
    let is_ours = how == REG_CREATED_NEW_KEY || is_marked(&key);
    let bytes: Vec<u8> = wide(MESSAGES).iter().flat_map(|c| c.to_le_bytes()).collect();
    let written = match is_ours {
        true => [
            put(open, MARK, REG_DWORD, &1u32.to_le_bytes()),
            put(open, "EventMessageFile", REG_EXPAND_SZ, &bytes),
            put(open, "TypesSupported", REG_DWORD, &TYPES.to_le_bytes()),
        ],
        false => [ERROR_SUCCESS; 3],
    };
    // SAFETY: it is open, and used no more.
    unsafe { RegCloseKey(open) };
    if !is_ours {
        return Err(format!(
            "another program writes to the event log as \"{name}\"; -n gives another name"
        ));
    }
    match written.into_iter().find(|code| *code != ERROR_SUCCESS) {
        Some(code) => Err(failed(name, code)),
        None => Ok(()),
    }
}

fn put(key: HKEY, name: &str, kind: u32, value: &[u8]) -> u32 {
    let (name, len) = (wide(name), value.len() as u32);
    // SAFETY: the key is open, the name ends in a zero, the value has that length.
    unsafe { RegSetValueExW(key, name.as_ptr(), 0, kind, value.as_ptr(), len) }
}

/// It is a source no more. What it has written stays.
pub fn remove(name: &str) -> Result<(), String> {
    let key = key(name);
    if !is_marked(&key) {
        return Ok(());
    }
    // SAFETY: the name ends in a zero.
    match unsafe { RegDeleteKeyW(HKEY_LOCAL_MACHINE, key.as_ptr()) } {
        ERROR_SUCCESS | ERROR_FILE_NOT_FOUND => Ok(()),
        code => Err(failed(name, code)),
    }
}

struct Source {
    handle: HANDLE,
    flow: Flow,
}

// SAFETY: the handle is a number that the system knows in all threads of the process.
unsafe impl Send for Source {}

static SOURCE: Mutex<Option<Source>> = Mutex::new(None);

/// From now on events are written.
pub fn begin(name: &str) {
    // SAFETY: the name ends in a zero; no server's name is this machine's.
    let handle = unsafe { RegisterEventSourceW(std::ptr::null(), wide(name).as_ptr()) };
    if !handle.is_null() {
        let source = Source { handle, flow: Flow::new(MOST, WHILE) };
        *SOURCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }
}

/// Writes an event, if the process is a service.
pub fn report(event: Event, text: &[u8]) {
    let mut source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(source) = source.as_mut() else { return };
    let Some(left_out) = source.flow.take(Instant::now()) else { return };
    if left_out > 0 {
        let text = format!("{left_out} events were left out, they are in the error log");
        write(source.handle, Event::Alert, text.as_bytes());
    }
    write(source.handle, event, text);
}

fn write(to: HANDLE, event: Event, text: &[u8]) {
    let mut text = event_text(text);
    text.push(0);
    let texts = [text.as_ptr()];
    let (nobody, no_data) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: the handle is never closed; there is one text, which ends in a zero and outlives the call.
    // An event log that is full must not stop the server.
    unsafe {
        ReportEventW(
            to,
            EVENTLOG_ERROR_TYPE,
            0,
            event as u32,
            nobody,
            1,
            0,
            texts.as_ptr(),
            no_data,
        )
    };
}
