//! Names that the protocol fixes: methods and reason phrases.

use weir_wire::http1::request::Method;

/// As the protocol writes it; empty for one that is not known by number.
pub fn method(m: Method) -> &'static [u8] {
    match m {
        Method::Get => b"GET",
        Method::Head => b"HEAD",
        Method::Post => b"POST",
        Method::Put => b"PUT",
        Method::Delete => b"DELETE",
        Method::Mkcol => b"MKCOL",
        Method::Copy => b"COPY",
        Method::Move => b"MOVE",
        Method::Options => b"OPTIONS",
        Method::Propfind => b"PROPFIND",
        Method::Proppatch => b"PROPPATCH",
        Method::Lock => b"LOCK",
        Method::Unlock => b"UNLOCK",
        Method::Patch => b"PATCH",
        Method::Trace => b"TRACE",
        Method::Connect => b"CONNECT",
        Method::Other => b"",
    }
}

/// `404 Not Found`; `None` for a status that nginx sends as a bare number.
pub fn status_line(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "200 OK",
        201 => "201 Created",
        202 => "202 Accepted",
        204 => "204 No Content",
        206 => "206 Partial Content",
        301 => "301 Moved Permanently",
        302 => "302 Moved Temporarily",
        303 => "303 See Other",
        304 => "304 Not Modified",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        400 => "400 Bad Request",
        401 => "401 Unauthorized",
        402 => "402 Payment Required",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Not Allowed",
        406 => "406 Not Acceptable",
        407 => "407 Proxy Authentication Required",
        408 => "408 Request Time-out",
        409 => "409 Conflict",
        410 => "410 Gone",
        411 => "411 Length Required",
        412 => "412 Precondition Failed",
        413 => "413 Request Entity Too Large",
        414 => "414 Request-URI Too Large",
        415 => "415 Unsupported Media Type",
        416 => "416 Requested Range Not Satisfiable",
        421 => "421 Misdirected Request",
        429 => "429 Too Many Requests",
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        502 => "502 Bad Gateway",
        503 => "503 Service Temporarily Unavailable",
        504 => "504 Gateway Time-out",
        505 => "505 HTTP Version Not Supported",
        507 => "507 Insufficient Storage",
        _ => return None,
    })
}
