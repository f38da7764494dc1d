//! What is noted of a request with a yes or no, by the engine and for it. What a module alone wants to know is
//! a [`Mark`](crate::marks::Mark).

/// A request's own yeses.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    /// Set by the rewrite module's code and `try_files`; a changed URI finds its location again.
    pub uri_changed: bool,
    /// `Location` was set by this server, not by an upstream.
    pub own_location: bool,
    /// In a regex location with an alias: `try_files` has chosen what follows the alias.
    pub add_uri_to_alias: bool,
    /// The URI is the one the client sent, so `$request_uri`'s path may be passed on unchanged.
    pub valid_unparsed_uri: bool,
    /// The URI still begins with its location's name: false after `rewrite … break`.
    pub valid_location: bool,
    /// It came while the request before it was being answered.
    pub pipelined: bool,
    /// It was redirected here by this server, or is a part.
    pub internal: bool,
    /// The connection stays when it is answered.
    pub keepalive: bool,
    pub(crate) chunked: bool,
    /// The connection becomes a tunnel after the header (101).
    pub upgraded: bool,
    /// It is answered for as long as the client wants: how long that was says nothing.
    pub endless: bool,
    /// The response has no body: `HEAD`, 204, 304.
    pub header_only: bool,
    /// The header has gone through the filters: another status can no longer be given.
    pub header_sent: bool,
    /// The whole response has been sent: `$request_completion`.
    pub complete: bool,
    /// An error page is being produced.
    pub(crate) error_page: bool,
    /// The client may still be sending: read on for a while after the answer.
    pub(crate) lingering: bool,
    pub(crate) discard_body: bool,
    /// `return 444`, or the peer has gone.
    pub(crate) aborted: bool,
    /// Its handler can tell what of it a range is.
    pub allow_ranges: bool,
    /// Conditions and ranges were judged elsewhere (an upstream that answered them itself).
    pub ignore_conditions: bool,
    /// With `allow_ranges`: one at a time.
    pub single_range: bool,
    /// A filter looks at the text, so that files are read.
    pub filter_needs_memory: bool,
    /// Vary: Accept-Encoding is to be sent; this request may be answered compressed.
    pub gzip_vary: bool,
    /// It has been answered, and does what is to be done then: `post_action`.
    pub(crate) post_action: bool,
    /// The client did not take what was to make room for them.
    pub(crate) unsent: bool,
    /// It is among those that its server has begun to answer.
    pub(crate) counted: bool,
    /// What it goes through is noted ([`crate::trace`]).
    pub(crate) traced: bool,
}

impl Flags {
    /// Every one, so that none is forgotten where they are packed.
    pub(super) fn all(&mut self) -> [&mut bool; 27] {
        let Flags {
            uri_changed,
            own_location,
            add_uri_to_alias,
            valid_unparsed_uri,
            valid_location,
            pipelined,
            internal,
            keepalive,
            chunked,
            upgraded,
            endless,
            header_only,
            header_sent,
            complete,
            error_page,
            lingering,
            discard_body,
            aborted,
            allow_ranges,
            ignore_conditions,
            single_range,
            filter_needs_memory,
            gzip_vary,
            post_action,
            unsent,
            counted,
            traced,
        } = self;
        [
            uri_changed,
            own_location,
            add_uri_to_alias,
            valid_unparsed_uri,
            valid_location,
            pipelined,
            internal,
            keepalive,
            chunked,
            upgraded,
            endless,
            header_only,
            header_sent,
            complete,
            error_page,
            lingering,
            discard_body,
            aborted,
            allow_ranges,
            ignore_conditions,
            single_range,
            filter_needs_memory,
            gzip_vary,
            post_action,
            unsent,
            counted,
            traced,
        ]
    }
}
