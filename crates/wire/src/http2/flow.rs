//! One stream's windows (RFC 9113 section 5.2).

use super::WINDOW_MAX_BYTES;

/// What this side may still send; negative when the peer has taken some of it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWindow(i64);

/// The peer made a window larger than one can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl SendWindow {
    pub fn new(bytes: u32) -> SendWindow {
        SendWindow(i64::from(bytes))
    }

    pub fn available(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    pub fn take(&mut self, bytes: u64) {
        self.0 -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    pub fn widen(&mut self, bytes: i64) -> Result<(), Overflow> {
        let wider = self.0.saturating_add(bytes);
        if wider > i64::from(WINDOW_MAX_BYTES) {
            return Err(Overflow);
        }
        self.0 = wider;
        Ok(())
    }
}

/// What the peer may still send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveWindow(u32);

impl ReceiveWindow {
    pub fn new(bytes: u32) -> ReceiveWindow {
        ReceiveWindow(bytes)
    }

    pub fn left(self) -> u32 {
        self.0
    }

    pub fn take(&mut self, bytes: u32) -> Result<(), Overflow> {
        self.0 = self.0.checked_sub(bytes).ok_or(Overflow)?;
        Ok(())
    }

    /// Opens the window to that size; answers by how much the peer is to be told, 0 when it is
    /// not worth a frame yet.
    pub fn open_to(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.min(WINDOW_MAX_BYTES);
        if self.0 >= bytes || self.0 > bytes - bytes.div_ceil(4) {
            return 0;
        }
        let more = bytes - self.0;
        self.0 = bytes;
        more
    }
}
