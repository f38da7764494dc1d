//! Sockets and handles as another process of this program can take them: a socket by `WSADuplicateSocket` (a handle of one
//! that is merely duplicated or inherited does not work with every provider), all else as a handle duplicated into it.

use super::sockets::{OwnedFd, RawFd};
use std::io;
use std::os::windows::io::{
    AsRawHandle, FromRawHandle, FromRawSocket, OwnedHandle, OwnedSocket, RawSocket,
};
use std::sync::Once;
use windows_sys::Win32::Foundation::{DuplicateHandle, DUPLICATE_SAME_ACCESS, HANDLE};
use windows_sys::Win32::Networking::WinSock::{
    getsockopt, WSADuplicateSocketW, WSASocketW, WSAStartup, FROM_PROTOCOL_INFO, INVALID_SOCKET,
    SOCKET, SOL_SOCKET, SO_ACCEPTCONN, SO_TYPE, WSADATA, WSAPROTOCOL_INFOW,
    WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcess, PROCESS_DUP_HANDLE};

/// What the other process is told of one: which of the two it is, and what it is taken by.
pub(super) const LENT_BYTES: usize = 1 + INFO_BYTES;
const INFO_BYTES: usize = size_of::<WSAPROTOCOL_INFOW>();
/// 2.2
const VERSION: u16 = 0x202;
const SOCKET_MARK: u8 = 1;
const HANDLE_MARK: u8 = 2;

/// What the system says of a socket; `None` of what is none.
pub(crate) fn ask(fd: RawFd, name: i32) -> Option<i32> {
    let mut answer = 0;
    let mut len = size_of::<i32>() as i32;
    let value = std::ptr::from_mut(&mut answer).cast();
    // SAFETY: the value and its length are valid for the call, which takes any number.
    let done = unsafe { getsockopt(fd as SOCKET, SOL_SOCKET, name, value, &mut len) };
    (done == 0).then_some(answer)
}

/// Whether it listens.
pub(crate) fn listens(fd: RawFd) -> bool {
    ask(fd, SO_ACCEPTCONN).is_some_and(|is| is != 0)
}

/// Makes one of this process that other's, too.
pub(super) fn lend(fd: RawFd, pid: u32) -> io::Result<[u8; LENT_BYTES]> {
    let mut lent = [0; LENT_BYTES];
    if ask(fd, SO_TYPE).is_some() {
        let mut info = WSAPROTOCOL_INFOW::default();
        // SAFETY: a socket of this process, and room for what the call writes.
        if unsafe { WSADuplicateSocketW(fd as SOCKET, pid, &mut info) } != 0 {
            return Err(io::Error::last_os_error());
        }
        lent[0] = SOCKET_MARK;
        // SAFETY: as many plain bytes as there is room for.
        unsafe {
            let from = std::ptr::from_ref(&info).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, lent[1..].as_mut_ptr(), INFO_BYTES);
        }
        return Ok(lent);
    }
    lent[0] = HANDLE_MARK;
    let number = duplicate(fd, Some(pid))? as usize as u64;
    lent[1..9].copy_from_slice(&number.to_ne_bytes());
    Ok(lent)
}

/// Another handle, here or in another process.
fn duplicate(fd: RawFd, to: Option<u32>) -> io::Result<HANDLE> {
    let own = fd as usize as HANDLE;
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: pseudo handles, or one that is closed again; a number, and a value of this frame that the call fills.
    unsafe {
        let here = GetCurrentProcess();
        let other = match to {
            None => None,
            Some(pid) => match OpenProcess(PROCESS_DUP_HANDLE, 0, pid) {
                none if none.is_null() => return Err(io::Error::last_os_error()),
                other => Some(OwnedHandle::from_raw_handle(other)),
            },
        };
        let there = other.as_ref().map_or(here, AsRawHandle::as_raw_handle);
        match DuplicateHandle(here, own, there, &mut copy, 0, 0, DUPLICATE_SAME_ACCESS) {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(copy),
        }
    }
}

/// Calls on sockets fail before this one, which whoever makes the first socket of a process makes.
fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let mut about = WSADATA::default();
        // SAFETY: there is room for what the call writes. Where it fails, so does what follows.
        unsafe { WSAStartup(VERSION, &mut about) };
    });
}

/// What another process has made this one's. To be called once for each.
pub(super) fn take(lent: &[u8]) -> io::Result<OwnedFd> {
    let (mark, what) = lent.split_first().ok_or(io::ErrorKind::InvalidData)?;
    if *mark == HANDLE_MARK {
        let number = what.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        let handle = u64::from_ne_bytes(*number) as usize as HANDLE;
        // SAFETY: it was made for this process, and is nobody else's.
        return Ok(OwnedFd::Handle(unsafe { OwnedHandle::from_raw_handle(handle) }));
    }
    if *mark != SOCKET_MARK || what.len() != INFO_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: plain numbers, of which there are as many bytes.
    let info = unsafe { std::ptr::read_unaligned(what.as_ptr().cast::<WSAPROTOCOL_INFOW>()) };
    let any = FROM_PROTOCOL_INFO;
    let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
    begin();
    // SAFETY: what the other process was given; the socket, if there is one, is nobody else's.
    match unsafe { WSASocketW(any, any, any, &info, 0, flags) } {
        INVALID_SOCKET => Err(io::Error::last_os_error()),
        socket => Ok(OwnedFd::Socket(unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) })),
    }
}

/// Another handle of the same thing in this process.
pub(super) fn copy(fd: RawFd) -> io::Result<OwnedFd> {
    match ask(fd, SO_TYPE) {
        Some(_) => take(&lend(fd, std::process::id())?),
        // SAFETY: it was made just now and is nobody else's.
        None => {
            duplicate(fd, None).map(|h| OwnedFd::Handle(unsafe { OwnedHandle::from_raw_handle(h) }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::sockets::AsRawFd;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_is_lent_is_the_same_thing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let of = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        assert!(!listens(of.as_raw_fd()));
        let copied = TcpStream::from(OwnedSocket::from(copy(of.as_raw_fd()).unwrap()));
        drop(of);
        let (mut near, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut &copied, b"a").unwrap();
        near.read_exact(&mut [0]).unwrap();
    }
}
