//! Logging to syslog over UDP or a Unix datagram socket (RFC 3164 as nginx writes it).

use crate::logger::{ErrorLog, LogLevel};
use crate::socket_errors;
use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use weir_base::date;
use weir_runtime::listen::may_be_unix;
use weir_runtime::sockets::UnixDatagram;
use weir_runtime::{clock, paths, process, tz};

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];

#[derive(Clone, Debug)]
enum Target {
    Udp(SocketAddr),
    Unix(PathBuf),
}

enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// Where it is told that a line could not be sent: the process's own error log.
static REPORTS: RwLock<Option<Arc<ErrorLog>>> = RwLock::new(None);

thread_local! {
    /// The destination that is being reported on: the report does not go there itself, and makes no
    /// reports of its own. 0 for none.
    static REPORTED: Cell<usize> = const { Cell::new(0) };
}

/// From now on failures are reported there.
pub fn report_to(log: &Arc<ErrorLog>) {
    *REPORTS.write().unwrap_or_else(|e| e.into_inner()) = Some(Arc::clone(log));
}

/// One `syslog:` destination.
pub struct Syslog {
    target: Target,
    /// As the configuration names it.
    name: String,
    facility: usize,
    pub(crate) severity: usize,
    tag: String,
    hostname: Option<String>,
    socket: Mutex<Option<Socket>>,
}

impl Syslog {
    /// Parses what follows `syslog:`; errors are nginx's.
    pub fn parse(text: &[u8]) -> Result<Syslog, String> {
        let mut target = None;
        let mut s = Syslog {
            target: Target::Unix(PathBuf::new()),
            name: String::new(),
            facility: 23,
            severity: 6,
            tag: "nginx".into(),
            hostname: Some(process::hostname()),
            socket: Mutex::new(None),
        };
        for bytes in text.split(|b| *b == b',') {
            let part = String::from_utf8_lossy(bytes);
            match part.split_once('=') {
                Some(("server", v)) => {
                    target = Some(parse_server(&bytes[b"server=".len()..])?);
                    s.name = v.to_string();
                }
                Some(("facility", v)) => s.facility = index(&FACILITIES, v, "facility")?,
                Some(("severity", v)) => s.severity = index(&SEVERITIES, v, "severity")?,
                Some(("tag", v)) => s.tag = parse_tag(v)?,
                _ if part == "nohostname" => s.hostname = None,
                _ => return Err(format!("unknown syslog parameter \"{part}\"")),
            }
        }
        s.target = target.ok_or("no syslog server specified")?;
        Ok(s)
    }

    /// Sends a line of an error log.
    pub fn send(&self, level: LogLevel, text: &[u8]) {
        if REPORTED.get() != self.number() {
            self.send_with(level as usize - 1, text);
        }
    }

    /// Sends a line at the severity the configuration named (access logs); whether it could be.
    pub fn send_configured(&self, text: &[u8]) -> bool {
        self.send_with(self.severity, text)
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn send_with(&self, severity: usize, text: &[u8]) -> bool {
        let Err((level, what)) = self.try_send(severity, text) else { return true };
        if REPORTED.get() == 0 {
            let log = REPORTS.read().unwrap_or_else(|e| e.into_inner()).clone();
            REPORTED.set(self.number());
            if let Some(log) = log {
                log.log(level, None, what.as_bytes());
            }
            REPORTED.set(0);
        }
        false
    }

    /// The error is what to log of it, as nginx does.
    fn try_send(&self, severity: usize, text: &[u8]) -> Result<(), (LogLevel, String)> {
        let (secs, _) = clock::wall();
        let mut line = format!("<{}>", self.facility * 8 + severity).into_bytes();
        line.extend_from_slice(&date::format_syslog(secs, tz::offset_minutes(secs)));
        line.push(b' ');
        if let Some(h) = &self.hostname {
            line.extend_from_slice(h.as_bytes());
            line.push(b' ');
        }
        line.extend_from_slice(self.tag.as_bytes());
        line.extend_from_slice(b": ");
        line.extend_from_slice(text);
        let mut socket = self.socket.lock().unwrap_or_else(|e| e.into_inner());
        let failed = |call: &str, e: &std::io::Error| {
            let why = weir_conf::messages::os_error(e);
            format!("{call}() failed ({why}) while logging to syslog, server: {}", self.name)
        };
        let open = match socket.take() {
            Some(open) => open,
            None => self.connect().map_err(|e| (LogLevel::Alert, failed("connect", &e)))?,
        };
        let sent = match &open {
            Socket::Udp(s) => s.send(&line),
            Socket::Unix(s) => s.send(&line),
        };
        match sent {
            Ok(_) => *socket = Some(open),
            // A server that is slow loses lines, which is not worth more of them.
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => *socket = Some(open),
            // The next line tries a fresh socket; losing this one must not stop the server.
            Err(e) => {
                return Err((socket_errors::level(&e, LogLevel::Error), failed("send", &e)));
            }
        }
        Ok(())
    }

    fn connect(&self) -> std::io::Result<Socket> {
        match &self.target {
            Target::Udp(to) => {
                let from: SocketAddr =
                    if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
                let s = UdpSocket::bind(from)?;
                s.connect(to)?;
                s.set_nonblocking(true)?;
                Ok(Socket::Udp(s))
            }
            Target::Unix(path) => {
                let s = UnixDatagram::unbound()?;
                s.connect(path)?;
                s.set_nonblocking(true)?;
                Ok(Socket::Unix(s))
            }
        }
    }
}

fn index(list: &[&str], value: &str, what: &str) -> Result<usize, String> {
    let found = list.iter().position(|f| *f == value);
    found.ok_or_else(|| format!("unknown syslog {what} \"{value}\""))
}

fn parse_tag(tag: &str) -> Result<String, String> {
    if tag.len() > 32 {
        return Err("syslog tag length exceeds 32".into());
    }
    if !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err("syslog \"tag\" only allows alphanumeric characters and underscore".into());
    }
    Ok(tag.to_string())
}

fn parse_server(server: &[u8]) -> Result<Target, String> {
    use std::net::ToSocketAddrs;
    if let Some(path) = server.strip_prefix(b"unix:") {
        may_be_unix()?;
        return Ok(Target::Unix(paths::path(path).into_owned()));
    }
    let text = String::from_utf8_lossy(server);
    let with_port = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') && text[at + 1..].parse::<u16>().is_ok() => {
            text.to_string()
        }
        _ => format!("{text}:514"),
    };
    let mut found = with_port.to_socket_addrs().map_err(|_| not_found(&text))?;
    found.next().map(Target::Udp).ok_or_else(|| not_found(&text))
}

fn not_found(text: &str) -> String {
    format!("host not found in syslog server \"{text}\"")
}
