//! Descriptors by the names that the other crates use. There are no sockets with paths; what is one elsewhere between a
//! master and its serving process is a pipe ([`super::handover`]).

use super::handover::End;
use super::{lent, unsupported};
use crate::listen::ListenAddr;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::os::windows::io::{
    AsRawHandle, AsRawSocket, FromRawHandle, FromRawSocket, IntoRawHandle, IntoRawSocket,
    OwnedHandle, OwnedSocket, RawHandle, RawSocket,
};
use std::path::Path;
use std::time::Duration;

/// The number of a handle or a socket, of which the system uses 32 bits.
pub type RawFd = i32;

/// A handle or a socket that is closed with it.
pub enum OwnedFd {
    Handle(OwnedHandle),
    Socket(OwnedSocket),
}

/// What has a number.
pub trait AsRawFd {
    fn as_raw_fd(&self) -> RawFd;
}

/// A handle or a socket of somebody else's.
#[derive(Clone, Copy)]
pub struct BorrowedFd<'a>(RawFd, PhantomData<&'a ()>);

/// What lends its handle or socket.
pub trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl<T: AsRawFd> AsFd for T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self.as_raw_fd(), PhantomData)
    }
}

impl BorrowedFd<'_> {
    pub fn try_clone_to_owned(&self) -> io::Result<OwnedFd> {
        copy(self)
    }
}

impl AsRawFd for BorrowedFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_raw_handle() as usize as RawFd
    }
}

impl AsRawFd for io::Stderr {
    fn as_raw_fd(&self) -> RawFd {
        self.as_raw_handle() as usize as RawFd
    }
}

impl AsRawFd for OwnedFd {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            OwnedFd::Handle(handle) => handle.as_raw_handle() as usize as RawFd,
            OwnedFd::Socket(socket) => socket.as_raw_socket() as RawFd,
        }
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        OwnedFd::Handle(file.into())
    }
}

impl From<OwnedFd> for File {
    /// A socket is no file: what is done with it fails.
    fn from(fd: OwnedFd) -> File {
        match fd {
            OwnedFd::Handle(handle) => handle.into(),
            OwnedFd::Socket(socket) => {
                let handle = socket.into_raw_socket() as usize as RawHandle;
                // SAFETY: it is nobody else's, and a socket is a handle to the system.
                unsafe { OwnedHandle::from_raw_handle(handle) }.into()
            }
        }
    }
}

impl From<OwnedFd> for OwnedSocket {
    /// A file is no socket: what is done with it fails.
    fn from(fd: OwnedFd) -> OwnedSocket {
        match fd {
            OwnedFd::Socket(socket) => socket,
            OwnedFd::Handle(handle) => {
                let socket = handle.into_raw_handle() as usize as RawSocket;
                // SAFETY: it is nobody else's, and of what is no socket calls fail.
                unsafe { OwnedSocket::from_raw_socket(socket) }
            }
        }
    }
}

impl From<TcpStream> for OwnedFd {
    fn from(stream: TcpStream) -> OwnedFd {
        OwnedFd::Socket(stream.into())
    }
}

impl From<OwnedSocket> for OwnedFd {
    fn from(socket: OwnedSocket) -> OwnedFd {
        OwnedFd::Socket(socket)
    }
}

macro_rules! nobodys {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(super) Infallible);

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                match self.0 {}
            }
        }

        impl $name {
            pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
                match self.0 {}
            }

            pub fn try_clone(&self) -> io::Result<$name> {
                match self.0 {}
            }
        }
    )*};
}

nobodys!(
    /// One that listens.
    UnixListener,
    /// One for datagrams.
    UnixDatagram
);

/// One end of the pipe between a master and its serving process. It has no number, and is waited for all the same.
pub struct UnixStream(pub(super) End);

impl AsRawFd for UnixStream {
    fn as_raw_fd(&self) -> RawFd {
        0
    }
}

impl UnixStream {
    pub fn connect(_: impl AsRef<Path>) -> io::Result<UnixStream> {
        unsupported()
    }

    pub fn try_clone(&self) -> io::Result<UnixStream> {
        unsupported()
    }

    pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        unsupported()
    }

    pub fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        unsupported()
    }
}

impl Read for &UnixStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        unsupported()
    }
}

impl Write for &UnixStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        unsupported()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl UnixListener {
    pub fn bind(_: impl AsRef<Path>) -> io::Result<UnixListener> {
        unsupported()
    }

    pub fn accept(&self) -> io::Result<(UnixStream, ())> {
        match self.0 {}
    }
}

impl UnixDatagram {
    pub fn unbound() -> io::Result<UnixDatagram> {
        unsupported()
    }

    pub fn connect(&self, _: impl AsRef<Path>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn send(&self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// Another handle of the same thing, to be handed on.
///
/// # Errors
///
/// The system's.
pub fn copy(of: &impl AsFd) -> io::Result<OwnedFd> {
    lent::copy(of.as_fd().as_raw_fd())
}

/// Listens under a name that no file stands for.
///
/// # Errors
///
/// There are none yet.
pub fn listen_abstract(_: &[u8]) -> io::Result<UnixListener> {
    unsupported()
}

/// Whether a call failed because the host at the other end is down, for which `std` has no kind.
pub fn is_host_down(e: &io::Error) -> bool {
    e.raw_os_error() == Some(windows_sys::Win32::Networking::WinSock::WSAEHOSTDOWN)
}

/// The process that listens on a port: the system is not asked yet.
pub fn holder(_: &ListenAddr) -> Option<String> {
    None
}
