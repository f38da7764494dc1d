//! Patience with a peer: what it may do that costs this side more than it costs the peer.
//!
//! Two purses. *Control* pays for frames that carry nothing (PING, SETTINGS, PRIORITY, empty
//! DATA and CONTINUATION, small WINDOW_UPDATEs, unknown ones); it fills with time, with streams
//! opened and with bytes sent. *Resets* pays for streams that end before their answer is
//! complete, whoever resets them (CVE-2023-44487, and its mirror image, where the peer provokes
//! this side's own reset); it fills with time and with streams that end well. Besides, a
//! connection whose bytes are mostly frame heads is ended as nginx ends it.

use super::{ErrorCode, Fault};

const CONTROL_START: u32 = 2_000;
const CONTROL_MAX: u32 = 20_000;
const CONTROL_PER_SECOND: u64 = 200;
/// More than a SETTINGS costs, which some clients send with each request.
const CONTROL_PER_STREAM: u32 = 16;
/// So many bytes sent in DATA pay for one WINDOW_UPDATE.
const BYTES_PER_CONTROL: u64 = 512;
/// Half of them at first: browsers leave pages with as many requests in flight as they may have (128), and go on to the next.
/// `keepalive_requests` bounds what a connection gets with time.
const RESETS_MAX: u32 = 512;
const RESETS_PER_SECOND: u64 = 100;
/// Received bytes that are no payload, beyond eight times the payload.
const OVERHEAD_MAX_BYTES: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct Budget {
    control: u32,
    resets: u32,
    /// The server as a whole sees too many resets: this connection has little credit.
    strict: bool,
    sent_bytes: u64,
    total_bytes: u64,
    payload_bytes: u64,
    filled_ms: u64,
}

impl Budget {
    pub fn new(now_ms: u64) -> Budget {
        Budget {
            control: CONTROL_START,
            resets: RESETS_MAX / 2,
            strict: false,
            sent_bytes: 0,
            total_bytes: 0,
            payload_bytes: 0,
            filled_ms: now_ms,
        }
    }

    /// Time passes. `strict`: the server as a whole is under attack.
    pub fn tick(&mut self, now_ms: u64, strict: bool) {
        self.strict = strict;
        let ms = now_ms.saturating_sub(self.filled_ms);
        let resets = (ms * RESETS_PER_SECOND / 1000).min(u64::from(RESETS_MAX)) as u32;
        if resets > 0 {
            let ms = ms - ms % (1000 / RESETS_PER_SECOND);
            self.filled_ms += ms;
            let control = (ms * CONTROL_PER_SECOND / 1000).min(u64::from(CONTROL_MAX)) as u32;
            self.control = (self.control + control).min(CONTROL_MAX);
            self.resets = (self.resets + resets).min(RESETS_MAX);
        }
    }

    pub fn stream_opened(&mut self) {
        self.control = (self.control + CONTROL_PER_STREAM).min(CONTROL_MAX);
    }

    pub fn stream_completed(&mut self) {
        self.resets = (self.resets + 1).min(RESETS_MAX);
    }

    pub fn sent(&mut self, bytes: u64) {
        let before = self.sent_bytes / BYTES_PER_CONTROL;
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes);
        let earned = (self.sent_bytes / BYTES_PER_CONTROL).saturating_sub(before);
        let earned = u32::try_from(earned).unwrap_or(CONTROL_MAX).min(CONTROL_MAX);
        self.control = (self.control + earned).min(CONTROL_MAX);
    }

    pub fn spend_control(&mut self, cost: u32) -> Result<(), Fault> {
        const CALM: Fault =
            Fault::new(ErrorCode::ENHANCE_YOUR_CALM, "client sent too many control frames");
        self.control = self.control.checked_sub(cost).ok_or(CALM)?;
        Ok(())
    }

    pub fn spend_reset(&mut self) -> Result<(), Fault> {
        const CALM: Fault =
            Fault::new(ErrorCode::ENHANCE_YOUR_CALM, "client caused too many stream resets");
        let cost = if self.strict { 10 } else { 1 };
        self.resets = self.resets.checked_sub(cost).ok_or(CALM)?;
        Ok(())
    }

    pub fn received(&mut self, bytes: u64) {
        self.total_bytes += bytes;
    }

    pub fn payload(&mut self, bytes: u64) {
        self.payload_bytes += bytes;
    }

    pub fn check_flood(&self) -> Result<(), Fault> {
        match self.total_bytes / 8 > self.payload_bytes + OVERHEAD_MAX_BYTES {
            true => Err(Fault::new(ErrorCode::NO_ERROR, "http2 flood detected")),
            false => Ok(()),
        }
    }
}
