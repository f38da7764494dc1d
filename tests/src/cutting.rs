//! A relay that cuts connections where it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

/// Where a connection ends.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Where its ends want.
    Never,
    /// At once.
    AtOnce,
    /// After so many bytes of who has connected.
    Asked(usize),
    /// After so many bytes of who was connected to.
    Answered(usize),
}

pub struct Relay {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Relay {
    /// Leads to that port; `cut` says of each connection, by its number, where it ends.
    pub fn to(port: u16, cut: impl Fn(usize) -> Cut + Send + 'static) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let cut = cut(counted.fetch_add(1, Ordering::Relaxed));
                thread::spawn(move || relay(socket, port, cut));
            }
        });
        Relay { port: here, count }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there were.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

fn relay(client: TcpStream, port: u16, cut: Cut) {
    let (up, down) = match cut {
        Cut::AtOnce => return,
        Cut::Never => (usize::MAX, usize::MAX),
        Cut::Asked(bytes) => (bytes, usize::MAX),
        Cut::Answered(bytes) => (usize::MAX, bytes),
    };
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    thread::scope(|scope| {
        scope.spawn(|| pass(&client, &server, up));
        pass(&server, &client, down);
    });
}

/// Until its end, or so many bytes: then both ends are closed.
fn pass(mut from: &TcpStream, mut to: &TcpStream, mut left: usize) {
    let mut buf = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buf) {
        let take = read.min(left);
        if read == 0 || to.write_all(&buf[..take]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        left -= take;
        if left == 0 {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
