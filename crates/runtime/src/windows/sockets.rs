//! Descriptors by the names that the other crates use. Nothing is handed to another process yet, and there are no sockets
//! with paths: nobody has one.

use super::unsupported;
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
use windows_sys::Win32::Foundation::{DuplicateHandle, DUPLICATE_SAME_ACCESS, HANDLE};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

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

impl From<UnixStream> for OwnedFd {
    fn from(stream: UnixStream) -> OwnedFd {
        match stream.0 {}
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
    /// A connected socket of this machine's.
    UnixStream,
    /// One that listens.
    UnixListener,
    /// One for datagrams.
    UnixDatagram
);

impl UnixStream {
    pub fn connect(_: impl AsRef<Path>) -> io::Result<UnixStream> {
        unsupported()
    }

    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        unsupported()
    }

    pub fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn shutdown(&self, _: std::net::Shutdown) -> io::Result<()> {
        match self.0 {}
    }
}

impl Read for UnixStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

impl Write for UnixStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

impl Read for &UnixStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

impl Write for &UnixStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
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

/// Another handle of the same thing, to be handed on; of a socket there is none.
pub fn copy(of: &impl AsFd) -> io::Result<OwnedFd> {
    let own = of.as_fd().as_raw_fd() as usize as HANDLE;
    let mut copy: HANDLE = std::ptr::null_mut();
    // SAFETY: the process's own pseudo handle, a number, and a value of this frame that the call fills.
    let done = unsafe {
        let here = GetCurrentProcess();
        DuplicateHandle(here, own, here, &mut copy, 0, 0, DUPLICATE_SAME_ACCESS)
    };
    match done {
        0 => Err(io::Error::last_os_error()),
        // SAFETY: it was made just now and is nobody else's.
        _ => Ok(OwnedFd::Handle(unsafe { OwnedHandle::from_raw_handle(copy) })),
    }
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
