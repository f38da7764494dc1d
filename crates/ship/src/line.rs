//! A connection of a client's, with or without TLS, in a thread that may block.
//!
//! Each exchange has a time for all of it ([`Line::begin`]), so that a receiver that sends a byte now and then does not
//! hold the thread; and whatever waits looks every [`LOOK_MS`] whether the process ends.

pub mod tls;

use crate::receiver::Stop;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tls::Tls;
use weir_runtime::clock;
use weir_runtime::net::begin_connect;
use weir_tls::rustls::ClientConnection;

/// How often something that waits looks whether it is to end.
const LOOK_MS: u64 = 100;
/// How often a connection that is being made is looked at, at first and later.
const DIAL_FIRST_MS: u64 = 1;
const DIAL_MOST_MS: u64 = 20;
/// Of a host's addresses so many are tried.
const ADDRESSES_MAX: usize = 8;

/// The socket, as TLS sees it: reads and writes that end with the exchange's time, or the process.
struct Socket {
    tcp: TcpStream,
    until: Instant,
    stop: Arc<Stop>,
}

pub struct Line {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

/// Connects to one of the host's addresses, and shakes hands where there is TLS. All of it takes `within` at most, the
/// system's look-up of the name left out.
///
/// # Errors
///
/// What failed, in words, with the host.
pub fn dial(
    host: &str,
    port: u16,
    tls: Option<&Tls>,
    within: Duration,
    stop: &Arc<Stop>,
) -> Result<Line, String> {
    let until = Instant::now() + within;
    let failed = |what: &str, e: &io::Error| format!("{what} {host}:{port}: {}", words(e));
    let bare = host.trim_matches(['[', ']']);
    let found = (bare, port).to_socket_addrs().map_err(|e| failed("cannot find", &e))?;
    let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for (n, address) in found.iter().enumerate() {
        // Those that are left want their share of the time.
        let left = until.saturating_duration_since(Instant::now());
        let share = left / (found.len() - n).max(1) as u32;
        match connect(*address, Instant::now() + share, stop) {
            Ok(tcp) => {
                let mut line =
                    Line { socket: Socket { tcp, until, stop: Arc::clone(stop) }, tls: None };
                if let Some(tls) = tls {
                    line.shake(tls, bare).map_err(|e| format!("{host}:{port}: {e}"))?;
                }
                return Ok(line);
            }
            Err(e) => last = e,
        }
    }
    Err(failed("cannot connect to", &last))
}

fn connect(address: SocketAddr, until: Instant, stop: &Stop) -> io::Result<TcpStream> {
    let tcp = begin_connect(address)?;
    let mut pause_ms = DIAL_FIRST_MS;
    while tcp.peer_addr().is_err() {
        if let Some(e) = tcp.take_error()? {
            return Err(e);
        }
        if stop.is_set() {
            return Err(ending());
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(pause_ms));
        pause_ms = (pause_ms * 2).min(DIAL_MOST_MS);
    }
    tcp.set_nonblocking(false)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(Duration::from_millis(LOOK_MS)))?;
    tcp.set_write_timeout(Some(Duration::from_millis(LOOK_MS)))?;
    Ok(tcp)
}

fn ending() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the process ends")
}

/// An error of the system in its words alone.
pub fn words(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::TimedOut => "it took too long".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        _ => weir_conf::messages::os_error(e),
    }
}

impl Line {
    /// Another exchange begins, which is to be over in this time.
    pub fn begin(&mut self, within: Duration) {
        self.socket.until = Instant::now() + within;
    }

    /// What ALPN has agreed on.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// Says that nothing more will be sent, and closes the sending half.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        self.socket.tcp.shutdown(Shutdown::Write)
    }

    /// Whether the peer has closed it, or, without TLS (which speaks for itself), has said something that nobody has
    /// asked for. Does not wait.
    pub fn is_stale(&self) -> bool {
        let tcp = &self.socket.tcp;
        let good = tcp.set_nonblocking(true).is_ok()
            && match tcp.peek(&mut [0]) {
                Ok(bytes) => bytes > 0 && self.tls.is_some(),
                Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            };
        !good || tcp.set_nonblocking(false).is_err()
    }

    /// Reads what has come, without waiting for more: an error of the kind `WouldBlock` where that is nothing.
    ///
    /// # Errors
    ///
    /// As of any read.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut tcp = &self.socket.tcp;
        tcp.set_nonblocking(true)?;
        let read = match &mut self.tls {
            None => tcp.read(buf),
            Some(tls) => read_tls_now(tls, tcp, buf),
        };
        tcp.set_nonblocking(false)?;
        read
    }

    fn shake(&mut self, tls: &Tls, host: &str) -> Result<(), String> {
        let mut session = tls.session(host)?;
        while session.is_handshaking() {
            session
                .complete_io(&mut self.socket)
                .map_err(|e| format!("TLS handshake failed: {}", words(&e)))?;
        }
        tls.judge(&session, host, clock::wall_secs())?;
        self.tls = Some(Box::new(session));
        Ok(())
    }
}

fn read_tls_now(
    tls: &mut ClientConnection,
    mut tcp: &TcpStream,
    buf: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        if tls.read_tls(&mut tcp)? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

impl Read for Line {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buf),
            Some(tls) => weir_tls::rustls::Stream::new(&mut **tls, &mut self.socket).read(buf),
        }
    }
}

impl Write for Line {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(buf),
            Some(tls) => weir_tls::rustls::Stream::new(&mut **tls, &mut self.socket).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => weir_tls::rustls::Stream::new(&mut **tls, &mut self.socket).flush(),
        }
    }
}

impl Socket {
    /// Again and again, until it does more than wait.
    fn patiently<T>(&self, mut call: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            if self.stop.is_set() {
                return Err(io::Error::other(ending()));
            }
            match call(&self.tcp) {
                Err(e) if is_waiting(&e) => {
                    if Instant::now() >= self.until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                done => return done,
            }
        }
    }
}

fn is_waiting(e: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), WouldBlock | TimedOut | Interrupted)
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // What is always there is read late, too, but not for ever.
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.patiently(|mut tcp| tcp.read(buf))
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.patiently(|mut tcp| tcp.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair(within: Duration, stop: &Arc<Stop>) -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = dial("127.0.0.1", port, None, within, stop).unwrap();
        (line, listener.accept().unwrap().0)
    }

    #[test]
    fn what_trickles_ends_with_its_time() {
        let (mut line, mut peer) = pair(Duration::from_secs(5), &Arc::default());
        line.write_all(b"ask").unwrap();
        let mut asked = [0; 3];
        peer.read_exact(&mut asked).unwrap();
        assert!(!line.is_stale());
        let trickle = thread::spawn(move || while peer.write_all(b"x").is_ok() {});
        let begun = Instant::now();
        line.begin(Duration::from_millis(200));
        let e = line.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(3));
        while !line.is_stale() {
            thread::yield_now();
        }
        drop(line);
        trickle.join().unwrap();
    }

    #[test]
    fn who_waits_ends_with_the_process() {
        let stop: Arc<Stop> = Arc::default();
        let (mut line, _peer) = pair(Duration::from_secs(60), &stop);
        let waits = thread::spawn(move || line.read(&mut [0; 8]).unwrap_err().to_string());
        stop.set();
        assert_eq!(waits.join().unwrap(), "the process ends");
    }

    #[test]
    fn nobody_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let within = Duration::from_secs(5);
        let Err(e) = dial("127.0.0.1", port, None, within, &Arc::default()) else { panic!() };
        assert!(e.starts_with(&format!("cannot connect to 127.0.0.1:{port}: ")), "{e}");
        assert!(e.contains("refused"), "{e}");
    }
}
