//! How much of a thread's stack is left: code in Lua may nest calls that take of it.

use std::cell::Cell;

/// Address space for the stack of a thread that runs code in Lua, which takes memory as far as it is used: twice
/// [`ROOM_BYTES`], for a coroutine within another begins with that much.
pub const BYTES: usize = 128 << 20;
/// What the code of one coroutine can take of it. Calls that are nested (of `string.gsub`, with 9 KB each) come to the end of
/// Lua's own stack before (with 59 MB).
const ROOM_BYTES: usize = 64 << 20;

thread_local! {
    /// The address behind which there is no such room; 0 until somebody asks.
    static END: Cell<usize> = const { Cell::new(0) };
}

/// Whether there is room for the code of one more coroutine. A thread that was not made for Lua's code has half of what it has
/// for this.
pub fn has_room() -> bool {
    let here = 0u8;
    let end = match END.get() {
        0 => {
            let end = bounds().map_or(1, |(low, high)| low + ROOM_BYTES.min((high - low) / 2));
            END.set(end);
            end
        }
        end => end,
    };
    std::ptr::from_ref(&here).addr() > end
}

/// Where this thread's stack is.
#[cfg(target_os = "linux")]
pub(crate) fn bounds() -> Option<(usize, usize)> {
    // SAFETY: the attributes are filled by the first call, read by the second, and destroyed once.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        let rc = libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        (rc == 0).then(|| (low.addr(), low.addr() + size))
    }
}

#[cfg(windows)]
pub(crate) fn bounds() -> Option<(usize, usize)> {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both places are written.
    unsafe {
        windows_sys::Win32::System::Threading::GetCurrentThreadStackLimits(&mut low, &mut high);
    }
    Some((low, high))
}

#[cfg(not(any(target_os = "linux", windows)))]
fn bounds() -> Option<(usize, usize)> {
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn depth(so_far: u32) -> u32 {
        let taken = std::hint::black_box([0u8; 1000]);
        match has_room() {
            true => depth(so_far + 1) + u32::from(taken[0]),
            false => so_far,
        }
    }

    #[test]
    fn half_of_a_small_stack_is_left() {
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(|| depth(0));
        let depth = thread.unwrap().join().unwrap();
        assert!((100..600).contains(&depth), "{depth} calls of a kilobyte and more");
    }
}
