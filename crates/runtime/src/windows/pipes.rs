//! Pipes to programs: at their end as any other, at this one without waiting. A call is the system's until a thread of its
//! own pool tells that it is over, and has what it works with as long.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use windows_sys::Wdk::Storage::FileSystem::{
    FilePipeLocalInformation, NtQueryInformationFile, FILE_PIPE_CLOSING_STATE,
    FILE_PIPE_LOCAL_INFORMATION,
};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_IO_PENDING, ERROR_NO_DATA, GENERIC_READ,
    GENERIC_WRITE, HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, ReadFile, WriteFile, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED,
    FILE_READ_ATTRIBUTES, FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_INBOUND,
    PIPE_ACCESS_OUTBOUND, SECURITY_ANONYMOUS, SECURITY_SQOS_PRESENT,
};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, CreatePipe, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_WAIT,
};
use windows_sys::Win32::System::IO::{
    BindIoCompletionCallback, CancelIoEx, GetOverlappedResult, IO_STATUS_BLOCK, OVERLAPPED,
};

/// What a pipe holds, as on Linux. No call is for more.
pub(super) const PIPE_BYTES: u32 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The program reads what is written here.
    ToProgram,
    FromProgram,
}

fn last_error<T>() -> io::Result<T> {
    Err(io::Error::last_os_error())
}

/// A name that nobody knows before: the system gives pipes without one no calls that do not wait.
fn fresh_name() -> Vec<u16> {
    use std::hash::{BuildHasher, RandomState};
    static RANDOM: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let random = RANDOM.get_or_init(|| RandomState::new().hash_one(0));
    let (pid, turn) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let name = format!("\\\\.\\pipe\\weir-{pid}.{random:x}.{turn}");
    name.encode_utf16().chain([0]).collect()
}

/// This side's end, and the program's.
///
/// # Errors
///
/// The system's.
pub(super) fn pair(way: Way) -> io::Result<(PipeEnd, OwnedHandle)> {
    let name = fresh_name();
    // Also what is asked by programs that want to know what their ends are.
    let (ours, theirs) = match way {
        Way::ToProgram => (PIPE_ACCESS_OUTBOUND, GENERIC_READ | FILE_WRITE_ATTRIBUTES),
        Way::FromProgram => (PIPE_ACCESS_INBOUND, GENERIC_WRITE | FILE_READ_ATTRIBUTES),
    };
    let own = |handle: HANDLE| match handle {
        INVALID_HANDLE_VALUE => last_error(),
        // SAFETY: what the call has made is nobody else's.
        handle => Ok(unsafe { OwnedHandle::from_raw_handle(handle) }),
    };
    // SAFETY: a name that ends in a zero. It is of one pipe with one other end, which is taken at once: if somebody else had
    // it, this would fail.
    let ours = own(unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            ours | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            PIPE_BYTES,
            PIPE_BYTES,
            0,
            std::ptr::null(),
        )
    })?;
    // SAFETY: as above.
    let theirs = own(unsafe {
        CreateFileW(
            name.as_ptr(),
            theirs,
            0,
            std::ptr::null(),
            OPEN_EXISTING,
            SECURITY_SQOS_PRESENT | SECURITY_ANONYMOUS,
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: an open handle, and a function that stays. Each call that is begun with it lends what `ended` takes back.
    match unsafe { BindIoCompletionCallback(ours.as_raw_handle(), Some(ended), 0) } {
        0 => last_error(),
        _ => Ok((PipeEnd::new(ours, way), theirs)),
    }
}

/// Both ends of a pipe at which calls wait.
///
/// # Errors
///
/// The system's.
pub(crate) fn waiting() -> io::Result<(PipeReader, File)> {
    let (mut reader, mut writer) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: values of this frame that the call fills, with handles that are nobody else's and are not inherited.
    unsafe {
        match CreatePipe(&mut reader, &mut writer, std::ptr::null(), PIPE_BYTES) {
            0 => last_error(),
            _ => Ok((
                OwnedHandle::from_raw_handle(reader).into(),
                OwnedHandle::from_raw_handle(writer).into(),
            )),
        }
    }
}

/// Whoever reads a pipe by waiting holds up all who ask anything of that end, which so is asked by a thread.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<Option<Receiver<Option<usize>>>>);

/// An answer that takes longer is had the next time.
const ANSWER: Duration = Duration::from_millis(20);

impl Left {
    /// How many bytes are left in a pipe once nobody can write to it any more.
    pub(crate) fn of(&self, reader: &PipeReader) -> Option<usize> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match asked.take() {
            Some(answer) => answer,
            None => {
                let (to, answer) = mpsc::channel();
                let reader = reader.try_clone().ok()?;
                let ask = move || to.send(left(&reader));
                std::thread::Builder::new().name("left".into()).spawn(ask).ok()?;
                answer
            }
        };
        match answer.recv_timeout(ANSWER) {
            Ok(left) => left,
            // It is read: somebody may still write.
            Err(_) => {
                *asked = Some(answer);
                None
            }
        }
    }
}

fn left(reader: &PipeReader) -> Option<usize> {
    let mut about = FILE_PIPE_LOCAL_INFORMATION::default();
    let mut status = IO_STATUS_BLOCK::default();
    let bytes = size_of_val(&about) as u32;
    let to = std::ptr::from_mut(&mut about).cast();
    let pipe = reader.as_raw_handle();
    // SAFETY: an open handle, and values of this frame, of which the second is as large as is said.
    let done =
        unsafe { NtQueryInformationFile(pipe, &mut status, to, bytes, FilePipeLocalInformation) };
    let is_over = done == 0 && about.NamedPipeState == FILE_PIPE_CLOSING_STATE;
    is_over.then_some(about.ReadDataAvailable as usize)
}

enum Stage {
    Rests,
    /// The system has the bytes.
    Works,
    /// It has read or written so many, of which so many were told of.
    Done {
        bytes: usize,
        told: usize,
    },
    /// By this code.
    Failed(u32),
}

struct Call {
    stage: Stage,
    bytes: Vec<u8>,
    waker: Option<Waker>,
}

/// One end, and the one call at a time that there is for it.
#[repr(C)]
struct End {
    /// The first, so that who is told of it has the whole.
    state: UnsafeCell<OVERLAPPED>,
    pipe: OwnedHandle,
    call: Mutex<Call>,
}

// SAFETY: the state is the system's alone while a call works, and begun anew under the lock; the rest may be sent and shared.
unsafe impl Send for End {}
// SAFETY: as above.
unsafe impl Sync for End {}

impl End {
    fn lock(&self) -> MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call with the bytes that are there. Nobody touches those until it is over.
    fn begin(
        self: &Arc<Self>,
        call: &mut Call,
        ask: impl FnOnce(HANDLE, &mut [u8], *mut OVERLAPPED) -> i32,
    ) -> io::Result<()> {
        call.stage = Stage::Works;
        let state = self.state.get();
        let lent = Arc::into_raw(Arc::clone(self));
        // SAFETY: no call works, so that the state is nobody's.
        unsafe { *state = OVERLAPPED::default() };
        if ask(self.pipe.as_raw_handle(), &mut call.bytes, state) == 0 {
            let e = io::Error::last_os_error();
            if e.raw_os_error() != Some(ERROR_IO_PENDING as i32) {
                call.stage = Stage::Failed(code(&e));
                // SAFETY: what was lent above: of a call that was not begun nobody is told.
                drop(unsafe { Arc::from_raw(lent) });
                return Err(e);
            }
        }
        Ok(())
    }
}

fn code(e: &io::Error) -> u32 {
    e.raw_os_error().unwrap_or_default().unsigned_abs()
}

/// A call is over. Called in a thread of the system's.
unsafe extern "system" fn ended(_: u32, _: u32, state: *mut OVERLAPPED) {
    // SAFETY: the state is the first of what `begin` has lent.
    let end = unsafe { Arc::from_raw(state.cast_const().cast::<End>()) };
    let mut n = 0;
    // SAFETY: the handle and the state of a call that is over, and a value of this frame. The code that the thread is told
    // is not always one of those that other calls fail by.
    let done = unsafe { GetOverlappedResult(end.pipe.as_raw_handle(), state, &mut n, 0) };
    let stage = match done {
        0 => Stage::Failed(code(&io::Error::last_os_error())),
        _ => Stage::Done { bytes: n as usize, told: 0 },
    };
    let waker = {
        // Who has begun it has the lock until that is noted.
        let mut call = end.lock();
        call.stage = stage;
        call.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// This side's end of a pipe. A call does not wait.
pub struct PipeEnd {
    end: Arc<End>,
    way: Way,
}

impl PipeEnd {
    fn new(pipe: OwnedHandle, way: Way) -> PipeEnd {
        let call = Call { stage: Stage::Rests, bytes: Vec::new(), waker: None };
        let state = UnsafeCell::new(OVERLAPPED::default());
        PipeEnd { end: Arc::new(End { state, pipe, call: Mutex::new(call) }), way }
    }

    /// Appends what there is, but no more than so many bytes; 0 is the end.
    pub fn poll_read(
        &self,
        cx: &Context<'_>,
        to: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let mut call = self.end.lock();
        loop {
            match call.stage {
                Stage::Works => {
                    call.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                // Somebody has written no bytes, which is no end.
                Stage::Done { bytes, told } if bytes == told => call.stage = Stage::Rests,
                Stage::Done { bytes, told } => {
                    let until = bytes.min(told.saturating_add(most));
                    to.extend_from_slice(&call.bytes[told..until]);
                    call.stage = Stage::Done { bytes, told: until };
                    return Poll::Ready(Ok(until - told));
                }
                Stage::Failed(ERROR_BROKEN_PIPE | ERROR_NO_DATA | ERROR_HANDLE_EOF) => {
                    return Poll::Ready(Ok(0));
                }
                Stage::Failed(code) => {
                    return Poll::Ready(Err(io::Error::from_raw_os_error(code as i32)));
                }
                Stage::Rests => {
                    call.bytes.resize(most.clamp(1, PIPE_BYTES as usize), 0);
                    // One that was not begun has failed.
                    let _ = self.end.begin(&mut call, |pipe, bytes, state| {
                        let (at, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
                        // SAFETY: so much room, which stays, and is nobody else's until `ended`.
                        unsafe { ReadFile(pipe, at, len, std::ptr::null_mut(), state) }
                    });
                }
            }
        }
    }

    /// How many bytes it has taken. Who does not wait for that, and says other bytes later, has these taken before.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut call = self.end.lock();
        loop {
            match call.stage {
                Stage::Works => {
                    call.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Stage::Done { bytes: n, .. } => {
                    call.stage = Stage::Rests;
                    if n > 0 && bytes.starts_with(&call.bytes) {
                        return Poll::Ready(Ok(n));
                    }
                }
                Stage::Failed(code) => {
                    return Poll::Ready(Err(io::Error::from_raw_os_error(code as i32)));
                }
                Stage::Rests if bytes.is_empty() => return Poll::Ready(Ok(0)),
                Stage::Rests => {
                    call.bytes.clear();
                    call.bytes.extend_from_slice(&bytes[..bytes.len().min(PIPE_BYTES as usize)]);
                    let _ = self.end.begin(&mut call, |pipe, bytes, state| {
                        let (at, len) = (bytes.as_ptr(), bytes.len() as u32);
                        // SAFETY: so many bytes, which stay as they are until `ended`.
                        unsafe { WriteFile(pipe, at, len, std::ptr::null_mut(), state) }
                    });
                }
            }
        }
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        // The pipe is closed when the call is over. What is being written the program may still read; what is being read
        // nobody would.
        if self.way == Way::FromProgram && matches!(self.end.lock().stage, Stage::Works) {
            // SAFETY: an open handle, of which all calls are meant.
            unsafe { CancelIoEx(self.end.pipe.as_raw_handle(), std::ptr::null()) };
        }
    }
}
