//! How grave a failed call on a connection is: nginx's `ngx_connection_error`.

use crate::logger::LogLevel;
use std::io;

/// What the other side or the way to it does is logged at `usual`; anything else is an alert.
pub fn level(e: &io::Error, usual: LogLevel) -> LogLevel {
    match e.raw_os_error().is_none() || is_usual(e) {
        true => usual,
        false => LogLevel::Alert,
    }
}

/// Whether the network, or who is at its other end, has ended the connection.
pub fn is_usual(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    let known = matches!(
        e.kind(),
        K::ConnectionReset
            | K::ConnectionAborted
            | K::BrokenPipe
            | K::NotConnected
            | K::TimedOut
            | K::ConnectionRefused
            | K::NetworkDown
            | K::NetworkUnreachable
            | K::HostUnreachable
    );
    known || weir_runtime::sockets::is_host_down(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for code in [104, 32, 107, 110, 111, 100, 101, 112, 113] {
            let e = io::Error::from_raw_os_error(code);
            assert_eq!(level(&e, LogLevel::Info), LogLevel::Info, "{e}");
            assert_eq!(level(&e, LogLevel::Error), LogLevel::Error, "{e}");
        }
        for code in [9, 12, 22, 24, 90, 105] {
            let e = io::Error::from_raw_os_error(code);
            assert_eq!(level(&e, LogLevel::Info), LogLevel::Alert, "{e}");
        }
        let own = io::Error::other("no call of the system");
        assert_eq!(level(&own, LogLevel::Error), LogLevel::Error);
    }
}
