//! A thread stands still while another looks at it, or writes to what it works with.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Diagnostics::Debug::{
    GetThreadContext, CONTEXT, CONTEXT_CONTROL_AMD64, CONTEXT_FLAGS, CONTEXT_INTEGER_AMD64,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentThreadId, OpenThread, ResumeThread, SuspendThread, THREAD_GET_CONTEXT,
    THREAD_QUERY_INFORMATION, THREAD_SUSPEND_RESUME,
};

const REGISTERS: CONTEXT_FLAGS = CONTEXT_CONTROL_AMD64 | CONTEXT_INTEGER_AMD64;

/// Where the system puts registers: it wants them at such addresses.
#[repr(C, align(16))]
struct Registers(CONTEXT);

/// A thread of this process.
#[derive(Debug)]
pub(crate) struct Other {
    id: u32,
    handle: OwnedHandle,
}

/// Lets it go on, however this ends.
struct Held(HANDLE);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the thread was stopped once by who has made this, and its handle is open.
        unsafe { ResumeThread(self.0) };
    }
}

impl Other {
    /// The one that calls.
    pub fn own() -> io::Result<Other> {
        let rights = THREAD_SUSPEND_RESUME | THREAD_GET_CONTEXT | THREAD_QUERY_INFORMATION;
        // SAFETY: numbers are given; a handle that comes back is nobody else's.
        unsafe {
            let id = GetCurrentThreadId();
            match OpenThread(rights, 0, id) {
                handle if handle.is_null() => Err(io::Error::last_os_error()),
                handle => Ok(Other { id, handle: OwnedHandle::from_raw_handle(handle) }),
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }

    /// Calls this while it stands still, with its registers; not if it has ended, or is the one that calls.
    ///
    /// It may stand anywhere, and hold any lock, that of the allocator among them: what is called takes none, allocates
    /// nothing, logs nothing and does not panic.
    pub fn hold(&self, f: impl FnOnce(&CONTEXT)) {
        // SAFETY: takes nothing and answers a number.
        if unsafe { GetCurrentThreadId() } == self.id {
            return;
        }
        // SAFETY: plain numbers, for which zeroes are good.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.0.ContextFlags = REGISTERS;
        // SAFETY: the handle is open and has the right to do so.
        if unsafe { SuspendThread(self.raw()) } == u32::MAX {
            return;
        }
        let _held = Held(self.raw());
        // SAFETY: as above; the place is written, and of the size and at an address as the system wants it. The system
        // answers once the thread does stand, which the call before has only asked for.
        if unsafe { GetThreadContext(self.raw(), &mut registers.0) } != 0 {
            f(&registers.0);
        }
    }
}
