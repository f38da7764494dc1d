//! What directives name as words and the engine asks for as bits.

/// `…_next_upstream`, as bits.
pub(crate) mod next {
    pub(crate) const ERROR: u32 = 1;
    pub(crate) const TIMEOUT: u32 = 1 << 1;
    pub(crate) const INVALID_HEADER: u32 = 1 << 2;
    pub(crate) const HTTP_500: u32 = 1 << 3;
    pub(crate) const HTTP_502: u32 = 1 << 4;
    pub(crate) const HTTP_503: u32 = 1 << 5;
    pub(crate) const HTTP_504: u32 = 1 << 6;
    pub(crate) const HTTP_403: u32 = 1 << 7;
    pub(crate) const HTTP_404: u32 = 1 << 8;
    pub(crate) const HTTP_429: u32 = 1 << 9;
    pub(crate) const NON_IDEMPOTENT: u32 = 1 << 10;
    pub(crate) const OFF: u32 = 1 << 11;
    /// Never configured: there was nobody to ask.
    pub(crate) const NO_LIVE: u32 = 1 << 12;
    pub(crate) const UPDATING: u32 = 1 << 13;
}

/// `…_ignore_headers`, as bits.
pub(crate) mod ignore {
    pub(crate) const REDIRECT: u32 = 1;
    pub(crate) const EXPIRES: u32 = 1 << 1;
    pub(crate) const LIMIT_RATE: u32 = 1 << 2;
    pub(crate) const BUFFERING: u32 = 1 << 3;
    pub(crate) const CHARSET: u32 = 1 << 4;
    pub(crate) const EXPIRES_FIELD: u32 = 1 << 5;
    pub(crate) const CACHE_CONTROL: u32 = 1 << 6;
    pub(crate) const SET_COOKIE: u32 = 1 << 7;
    pub(crate) const VARY: u32 = 1 << 8;
}
