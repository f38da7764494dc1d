//! The named pipe by which a running server is asked: made so that only its owner and administrators may open it, from this
//! machine, and waited at beside a word to end.
//!
//! It is called by the server's number, as its events are, so that the name is one that no other process of that time can
//! have; who asks by a name of a file finds the number in the pid file beside it. Names of pipes are names of files too.

use super::{family, owned};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::read_to_string;
use std::io::{self, Read, Write};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_FILE_NOT_FOUND, ERROR_IO_PENDING, ERROR_NO_DATA, ERROR_PIPE_BUSY,
    ERROR_PIPE_CONNECTED, GENERIC_READ, GENERIC_WRITE, HANDLE, INVALID_HANDLE_VALUE, WAIT_OBJECT_0,
    WAIT_TIMEOUT,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, ReadFile, WriteFile, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED,
    OPEN_EXISTING, PIPE_ACCESS_DUPLEX, SECURITY_ANONYMOUS, SECURITY_SQOS_PRESENT,
};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, DisconnectNamedPipe, GetNamedPipeServerProcessId,
    PeekNamedPipe, WaitNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_UNLIMITED_INSTANCES, PIPE_WAIT,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, SetEvent, WaitForMultipleObjects, WaitForSingleObject, INFINITE,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};

/// The system, administrators and the owner.
const RIGHTS: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;OW)";
const BUFFER_BYTES: u32 = 64 << 10;
/// All ends of a pipe are taken for a moment when several ask, and a server that has just begun has none yet.
const BUSY: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// What has failed is tried again after that, and who has ends of the pipe that go is waited for so long.
const REST: Duration = Duration::from_millis(200);
const LEAVES: Duration = Duration::from_secs(10);

/// Where the system has its pipes.
const PIPES: &str = r"\\.\pipe\";

fn path_of(pid: u32) -> PathBuf {
    format!("{PIPES}weir-{pid}.control").into()
}

fn name_of(pid: u32) -> Vec<u16> {
    path_of(pid).as_os_str().encode_wide().chain([0]).collect()
}

/// The server whose pipe has that name.
fn pid_in(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("weir-")?.strip_suffix(".control")?.parse().ok()
}

/// The server that is asked by the name of a pipe, or of a file with more behind the pid file's.
fn pid_of(path: &Path) -> io::Result<u32> {
    let pipe = path.strip_prefix(PIPES).ok().and_then(|name| pid_in(name.as_os_str()));
    if let Some(pid) = pipe {
        return Ok(pid);
    }
    let number = read_to_string(path.with_extension(""))?;
    number.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn failed<T>() -> io::Result<T> {
    Err(io::Error::last_os_error())
}

fn code() -> u32 {
    io::Error::last_os_error().raw_os_error().unwrap_or_default().unsigned_abs()
}

fn event() -> io::Result<OwnedHandle> {
    // SAFETY: no name and no rights; the handle, if there is one, is nobody else's.
    unsafe {
        match CreateEventW(std::ptr::null(), 1, 0, std::ptr::null()) {
            none if none.is_null() => failed(),
            event => Ok(OwnedHandle::from_raw_handle(event)),
        }
    }
}

fn raw(handle: &OwnedHandle) -> HANDLE {
    handle.as_raw_handle()
}

/// One end of a pipe with somebody at the other.
pub struct Link {
    pipe: OwnedHandle,
    event: OwnedHandle,
    read_within: Cell<Option<Duration>>,
    write_within: Cell<Option<Duration>>,
}

impl Link {
    fn of(pipe: OwnedHandle) -> io::Result<Link> {
        let (read_within, write_within) = (Cell::new(None), Cell::new(None));
        Ok(Link { pipe, event: event()?, read_within, write_within })
    }

    /// Calls wait in any case.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// # Errors
    ///
    /// None.
    pub fn set_read_timeout(&self, within: Option<Duration>) -> io::Result<()> {
        self.read_within.set(within);
        Ok(())
    }

    /// # Errors
    ///
    /// None.
    pub fn set_write_timeout(&self, within: Option<Duration>) -> io::Result<()> {
        self.write_within.set(within);
        Ok(())
    }

    /// Begins a call and waits for its end.
    fn wait(
        &self,
        within: Option<Duration>,
        call: impl FnOnce(HANDLE, *mut OVERLAPPED) -> i32,
    ) -> io::Result<usize> {
        let mut state = OVERLAPPED { hEvent: raw(&self.event), ..OVERLAPPED::default() };
        let pipe = raw(&self.pipe);
        if call(pipe, &mut state) == 0 {
            match code() {
                ERROR_IO_PENDING => {}
                ERROR_BROKEN_PIPE | ERROR_NO_DATA => return Ok(0),
                _ => return failed(),
            }
        }
        let ms = within.map_or(INFINITE, |w| u32::try_from(w.as_millis()).unwrap_or(u32::MAX - 1));
        // SAFETY: a handle of this link's. What the system was lent is not let go of before the call has ended.
        unsafe {
            let is_late = WaitForSingleObject(raw(&self.event), ms) == WAIT_TIMEOUT;
            if is_late {
                CancelIoEx(pipe, &state);
            }
            let mut n = 0;
            match GetOverlappedResult(pipe, &state, &mut n, 1) {
                0 if is_late => Err(io::ErrorKind::TimedOut.into()),
                0 if matches!(code(), ERROR_BROKEN_PIPE | ERROR_NO_DATA) => Ok(0),
                0 => failed(),
                _ => Ok(n as usize),
            }
        }
    }
}

impl Read for &Link {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        self.wait(self.read_within.get(), |pipe, state| {
            // SAFETY: so much room, which is borrowed until the call has ended.
            unsafe { ReadFile(pipe, buf.as_mut_ptr(), room, std::ptr::null_mut(), state) }
        })
    }
}

impl Write for &Link {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let n = self.wait(self.write_within.get(), |pipe, state| {
            // SAFETY: so many bytes, which are borrowed until the call has ended.
            unsafe { WriteFile(pipe, buf.as_ptr(), len, std::ptr::null_mut(), state) }
        })?;
        match n {
            0 if len > 0 => Err(io::ErrorKind::BrokenPipe.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Link {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for Link {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An end that waits for somebody; the `first`, or one beside another of this process: whose the first is has given the
/// pipe its rights, and anybody may have made one of that name.
fn instance(first: bool) -> io::Result<OwnedHandle> {
    made(&name_of(family::main_pid()), first)
}

fn made(name: &[u16], first: bool) -> io::Result<OwnedHandle> {
    let only = if first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
    // SAFETY: the name ends in a zero, the rights outlive the call; the handle, if there is one, is nobody else's.
    owned::with_rights(RIGHTS, |rights| unsafe {
        let pipe = CreateNamedPipeW(
            name.as_ptr(),
            PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | only,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            PIPE_UNLIMITED_INSTANCES,
            BUFFER_BYTES,
            BUFFER_BYTES,
            0,
            rights,
        );
        match pipe {
            INVALID_HANDLE_VALUE => failed(),
            pipe => Ok(OwnedHandle::from_raw_handle(pipe)),
        }
    })
}

/// The pipe of this server.
pub struct Named(());

/// The name is not the file's, and the pipe is made by the process that answers: askers come to any end of it that there
/// is, and a master has none to answer at.
///
/// # Errors
///
/// None.
pub fn listen(_: &Path) -> io::Result<Named> {
    Ok(Named(()))
}

impl Named {
    /// Where it is asked does not change with the pid file's name.
    ///
    /// # Errors
    ///
    /// None.
    pub fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// It goes with its process.
    pub fn remove(&self, _: &Path) {}

    /// Waits for askers from now on, until the other value is dropped.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn answering(&self) -> io::Result<(Answering, End)> {
        // The serving process before this one may still have ends of it, and goes.
        let pipe = match instance(true) {
            Err(e) if !family::is_serving() => return Err(e),
            first => first.ok(),
        };
        let end = event()?;
        let heard = end.try_clone()?;
        Ok((Answering { pipe: Cell::new(pipe), end: heard }, End(end)))
    }
}

/// Ends the waiting when it is dropped.
pub struct End(OwnedHandle);

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: its own event.
        unsafe { SetEvent(raw(&self.0)) };
    }
}

/// Who waits for askers.
pub struct Answering {
    pipe: Cell<Option<OwnedHandle>>,
    end: OwnedHandle,
}

impl Answering {
    /// Waits until it may be asked, for some time.
    ///
    /// # Errors
    ///
    /// Another program has made the pipe. [`Answering::next`] goes on trying.
    pub fn begin(&self) -> io::Result<()> {
        let end = Instant::now() + LEAVES;
        loop {
            let pipe = self.pipe.take().map_or_else(|| instance(true), Ok);
            match pipe {
                Ok(pipe) => {
                    self.pipe.set(Some(pipe));
                    return Ok(());
                }
                Err(e) if Instant::now() > end => return Err(e),
                Err(_) if self.is_to_end(REST) => return Ok(()),
                Err(_) => {}
            }
        }
    }

    /// The next who asks; `None` once waiting is to end.
    pub fn next(&self) -> Option<Link> {
        loop {
            // Without one it had none beside which another would be its own.
            let come = match self.pipe.take().map_or_else(|| instance(true), Ok) {
                Ok(pipe) => self.wait_at(pipe),
                Err(e) => Err(e),
            };
            match come {
                Ok(link) => return link,
                // Out of something, or another's: not in a circle.
                Err(_) if self.is_to_end(REST) => return None,
                Err(_) => {}
            }
        }
    }

    /// Whether waiting is to end, within that time.
    fn is_to_end(&self, within: Duration) -> bool {
        // SAFETY: its own event.
        unsafe { WaitForSingleObject(raw(&self.end), within.as_millis() as u32) == WAIT_OBJECT_0 }
    }

    fn wait_at(&self, pipe: OwnedHandle) -> io::Result<Option<Link>> {
        let come = event()?;
        let mut state = OVERLAPPED { hEvent: raw(&come), ..OVERLAPPED::default() };
        // SAFETY: handles of this frame; what the system is lent stays until it has answered.
        unsafe {
            while ConnectNamedPipe(raw(&pipe), &mut state) == 0 {
                match code() {
                    ERROR_PIPE_CONNECTED => {
                        SetEvent(raw(&come));
                    }
                    ERROR_IO_PENDING => {}
                    // Somebody has come and gone: the end stays, for the name is not to be free for others.
                    ERROR_NO_DATA if DisconnectNamedPipe(raw(&pipe)) != 0 => continue,
                    _ => return failed(),
                }
                break;
            }
            let both = [raw(&self.end), raw(&come)];
            if WaitForMultipleObjects(2, both.as_ptr(), 0, INFINITE) == WAIT_OBJECT_0 {
                let mut n = 0;
                CancelIoEx(raw(&pipe), &state);
                GetOverlappedResult(raw(&pipe), &state, &mut n, 1);
                return Ok(None);
            }
        }
        // There always is an end to come to.
        self.pipe.set(instance(false).ok());
        Link::of(pipe).map(Some)
    }
}

/// Where a process is asked, which may just have begun.
///
/// # Errors
///
/// There is no such process.
pub fn of_process(pid: u32, _: &str) -> io::Result<Option<PathBuf>> {
    let end = Instant::now() + BUSY;
    loop {
        // SAFETY: the name ends in a zero. That all its ends are taken is an error too.
        let is_there = unsafe { WaitNamedPipeW(name_of(pid).as_ptr(), 1) } != 0
            || code() != ERROR_FILE_NOT_FOUND;
        if is_there {
            return Ok(Some(path_of(pid)));
        }
        if !i32::try_from(pid).is_ok_and(super::process::runs) {
            return Err(io::Error::from_raw_os_error(ERROR_FILE_NOT_FOUND as i32));
        }
        if Instant::now() > end {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// Where servers of this machine are asked; not all need be there still.
pub fn of_all(_: &str) -> Vec<PathBuf> {
    let pipes = std::fs::read_dir(PIPES).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = pipes.filter_map(|pipe| pid_in(&pipe.file_name())).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().map(path_of).collect()
}

/// Whether a server may be there to be asked.
pub fn may_be_at(path: &Path) -> bool {
    let pid = pid_of(path).ok().and_then(|pid| i32::try_from(pid).ok());
    pid.is_some_and(super::process::runs)
}

/// Whether who answers is this user's own: the pipe is as this process would have made it.
///
/// # Errors
///
/// The system's.
pub fn is_own(link: &Link) -> io::Result<bool> {
    let name: Vec<u16> =
        format!("{PIPES}{}", owned::fresh_name()).encode_utf16().chain([0]).collect();
    Ok(owned::check(&link.pipe, &made(&name, true)?).is_ok())
}

/// Goes to the server of that pipe, or of the pid file that has that name with more behind it.
///
/// # Errors
///
/// The system's; there is no such file, or no number in it.
pub fn connect(path: &Path) -> io::Result<Link> {
    let pid = pid_of(path)?;
    let end = Instant::now() + BUSY;
    loop {
        // SAFETY: the name ends in a zero; the handle, if there is one, is nobody else's. The server may not act as who asks.
        let pipe = unsafe {
            CreateFileW(
                name_of(pid).as_ptr(),
                GENERIC_READ | GENERIC_WRITE,
                0,
                std::ptr::null(),
                OPEN_EXISTING,
                FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_ANONYMOUS,
                std::ptr::null_mut(),
            )
        };
        match pipe {
            INVALID_HANDLE_VALUE => {
                let e = io::Error::last_os_error();
                let comes = match e.raw_os_error().map(i32::unsigned_abs) {
                    Some(ERROR_PIPE_BUSY) => true,
                    // Its serving process has just begun, or is started again.
                    Some(ERROR_FILE_NOT_FOUND) => {
                        i32::try_from(pid).is_ok_and(super::process::runs)
                    }
                    _ => false,
                };
                if !comes || Instant::now() > end {
                    return Err(e);
                }
                std::thread::sleep(LOOK);
            }
            pipe => {
                // SAFETY: as above.
                let pipe = unsafe { OwnedHandle::from_raw_handle(pipe) };
                return is_servers(&pipe, pid).and_then(|()| Link::of(pipe));
            }
        }
    }
}

/// Whether the process at the other end is that server, or serves for it: a pipe of that name may be made by anybody.
fn is_servers(pipe: &OwnedHandle, pid: u32) -> io::Result<()> {
    let mut there = 0;
    // SAFETY: an open handle, and room for the answer.
    if unsafe { GetNamedPipeServerProcessId(raw(pipe), &mut there) } == 0 {
        return failed();
    }
    match there == pid || family::parent_of(there)? == Some(pid) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "process {there} answers there, which is not of the server"
        ))),
    }
}

/// The user at the other end: by the pipe's rights its owner, or an administrator.
///
/// # Errors
///
/// None.
pub fn who(_: &Link) -> io::Result<u32> {
    Ok(super::process::uid())
}

/// Whether who asks is still there. He has said all that he has to say.
pub fn is_there(link: &Link) -> bool {
    let mut waits = 0;
    let none = std::ptr::null_mut();
    // SAFETY: a value of this frame, and otherwise nothing is to be written anywhere.
    unsafe {
        let here = raw(&link.pipe);
        PeekNamedPipe(here, none, 0, std::ptr::null_mut(), &mut waits, std::ptr::null_mut()) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_heard_and_answered() {
        let dir = std::env::temp_dir().join(format!("weir-inquiry-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("a.pid");
        std::fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        let path = dir.join("a.pid.control");
        let named = listen(&path).unwrap();
        let (answering, end) = named.answering().unwrap();
        let pid = std::process::id();
        let pipe = of_process(pid, "").unwrap().unwrap();
        assert!(may_be_at(&pipe) && may_be_at(&path) && !may_be_at(&dir.join("b.pid.control")));
        assert_eq!((pid_of(&pipe).unwrap(), pid_of(&path).unwrap()), (pid, pid));
        assert!(of_all("").contains(&pipe));
        assert!(named.answering().is_err());
        for _ in 0..3 {
            let mut asker = connect(&pipe).unwrap();
            assert!(is_own(&asker).unwrap());
            asker.write_all(b"version\n").unwrap();
            let mut link = answering.next().unwrap();
            assert!(is_there(&link));
            let mut seen = [0; 8];
            link.read_exact(&mut seen).unwrap();
            assert_eq!(&seen, b"version\n");
            link.set_read_timeout(Some(LOOK)).unwrap();
            assert_eq!(link.read(&mut seen).unwrap_err().kind(), io::ErrorKind::TimedOut);
            link.write_all(b"ok").unwrap();
            drop(link);
            let mut answer = Vec::new();
            asker.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"ok");
        }
        drop(end);
        assert!(answering.next().is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
