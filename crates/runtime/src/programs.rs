//! Programs that read what this process writes: each has the end of a pipe as its standard input and
//! nothing else of this process's open but its standard output.
//!
//! Windows: writing waits for room, which a thread does for whoever serves; what is left is asked there too.

use std::fs::{File, Metadata};
use std::io::{self, PipeReader};
use std::path::Path;
#[cfg(unix)]
use std::process::{Command, Stdio};

/// What has been written to a program, until that takes it.
#[derive(Debug)]
pub struct Unread(PipeReader, #[cfg(windows)] crate::windows::pipes::Left);

/// A pipe: its end for the program, and the one to write to. Neither is inherited by a program that is
/// started, and writing does not wait for room.
#[cfg(unix)]
pub fn pipe() -> io::Result<(Unread, File)> {
    let (reader, writer) = io::pipe()?;
    let writer = File::from(std::os::fd::OwnedFd::from(writer));
    let flags = rustix::fs::fcntl_getfl(&writer)?;
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((Unread(reader), writer))
}

#[cfg(windows)]
pub fn pipe() -> io::Result<(Unread, File)> {
    let (reader, writer) = crate::windows::pipes::waiting()?;
    Ok((Unread(reader, Default::default()), writer))
}

/// Whether a file could be started, as far as it says. Windows: by the end of its name.
#[cfg(unix)]
pub fn may_be_started(_: &Path, meta: &Metadata) -> bool {
    crate::files::is_executable(meta)
}

#[cfg(windows)]
pub fn may_be_started(path: &Path, _: &Metadata) -> bool {
    let ending = path.extension().unwrap_or_default();
    ["exe", "com"].iter().any(|known| ending.eq_ignore_ascii_case(known))
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

    #[cfg(windows)]
    pub fn start(&self, program: &Path, arguments: &[std::ffi::OsString]) -> io::Result<i32> {
        crate::windows::start_reader(&self.0, program, arguments)
    }

    #[cfg(unix)]
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

    #[cfg(windows)]
    pub fn left(&self) -> Option<usize> {
        self.1.of(&self.0)
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
