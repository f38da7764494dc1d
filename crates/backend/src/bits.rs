//! What directives name as words and the engine asks for as bits.

/// `…_next_upstream`, as bits.
pub mod next {
    pub const ERROR: u32 = 1;
    pub const TIMEOUT: u32 = 1 << 1;
    pub const INVALID_HEADER: u32 = 1 << 2;
    pub const HTTP_500: u32 = 1 << 3;
    pub const HTTP_502: u32 = 1 << 4;
    pub const HTTP_503: u32 = 1 << 5;
    pub const HTTP_504: u32 = 1 << 6;
    pub const HTTP_403: u32 = 1 << 7;
    pub const HTTP_404: u32 = 1 << 8;
    pub const HTTP_429: u32 = 1 << 9;
    pub const NON_IDEMPOTENT: u32 = 1 << 10;
    pub const OFF: u32 = 1 << 11;
    /// Never configured: there was nobody to ask.
    pub const NO_LIVE: u32 = 1 << 12;
    pub const UPDATING: u32 = 1 << 13;
}

/// `…_ignore_headers`, as bits.
pub mod ignore {
    pub const REDIRECT: u32 = 1;
    pub const EXPIRES: u32 = 1 << 1;
    pub const LIMIT_RATE: u32 = 1 << 2;
    pub const BUFFERING: u32 = 1 << 3;
    pub const CHARSET: u32 = 1 << 4;
    pub const EXPIRES_FIELD: u32 = 1 << 5;
    pub const CACHE_CONTROL: u32 = 1 << 6;
    pub const SET_COOKIE: u32 = 1 << 7;
    pub const VARY: u32 = 1 << 8;
}
