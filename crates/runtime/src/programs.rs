//! Programs that read what this process writes: each has the end of a pipe as its standard input and
//! nothing else of this process's open but its standard output.
//!
//! Windows: `std` has pipes and processes there too; a pipe is written by waiting, and whether it is read
//! to its end is not asked.

use std::fs::File;
use std::io::{self, PipeReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What has been written to a program, until that takes it.
#[derive(Debug)]
pub struct Unread(PipeReader);

/// A pipe: its end for the program, and the one to write to. Neither is inherited by a program that is
/// started, and writing does not wait for room.
pub fn pipe() -> io::Result<(Unread, File)> {
    let (reader, writer) = io::pipe()?;
    let writer = into_file(writer);
    #[cfg(unix)]
    {
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK)?;
    }
    Ok((Unread(reader), writer))
}

#[cfg(unix)]
fn into_file(writer: io::PipeWriter) -> File {
    std::os::fd::OwnedFd::from(writer).into()
}

#[cfg(windows)]
fn into_file(writer: io::PipeWriter) -> File {
    std::os::windows::io::OwnedHandle::from(writer).into()
}

impl Unread {
    /// Starts a program that reads it; the answer is its number. Its error output goes nowhere, as
    /// Tengine has it: where that is this log, the pipe would never end. A terminal's signals are for this
    /// process, whose last lines it is to read.
    #[cfg(unix)]
    pub fn start(&self, program: &Path, arguments: &[std::ffi::OsString]) -> io::Result<i32> {
        use std::os::unix::process::CommandExt;
        let mut command = self.command(program, arguments)?;
        crate::process::spawn_with(command.process_group(0), || {
            crate::signals::unblock_all();
            Ok(())
        })
    }

    #[cfg(not(unix))]
    pub fn start(&self, program: &Path, arguments: &[std::ffi::OsString]) -> io::Result<i32> {
        Ok(self.command(program, arguments)?.spawn()?.id() as i32)
    }

    fn command(&self, program: &Path, arguments: &[std::ffi::OsString]) -> io::Result<Command> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(self.0.try_clone()?).stderr(Stdio::null());
        Ok(command)
    }

    /// How many bytes are left to be taken once nobody can write to it any more.
    #[cfg(unix)]
    pub fn left(&self) -> Option<usize> {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.0);
        let mut ask = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry, and the call does not wait.
        unsafe { libc::poll(&mut ask, 1, 0) };
        if ask.revents & libc::POLLHUP == 0 {
            return None;
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: the number is valid for the call.
        unsafe { libc::ioctl(fd, libc::FIONREAD, &mut bytes) };
        usize::try_from(bytes).ok()
    }

    #[cfg(not(unix))]
    pub fn left(&self) -> Option<usize> {
        None
    }

    /// Has the pipe hold so many bytes; the system may take more.
    #[cfg(target_os = "linux")]
    pub fn set_size(&self, bytes: usize) -> io::Result<()> {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.0);
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: numbers only.
        match unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, bytes) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn set_size(&self, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_left_of_a_pipe_that_nobody_writes_to() {
        let (unread, mut writer) = pipe().unwrap();
        writer.write_all(b"ab").unwrap();
        assert_eq!(unread.left(), None);
        drop(writer);
        assert_eq!(unread.left(), Some(2));
        let mut text = [0; 2];
        io::Read::read_exact(&mut &unread.0, &mut text).unwrap();
        assert_eq!(unread.left(), Some(0));
    }
}
