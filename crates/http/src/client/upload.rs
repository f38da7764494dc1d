//! What a request's client sends: its body, in the protocol that it speaks.

use super::Over;
use crate::body::BodyError;
use crate::h1::body as h1;
use crate::h2::body as h2;
use crate::request::Request;

/// Waits for more of the body.
pub(crate) async fn fill(r: &mut Request, timeout_ms: u64) -> Result<(), BodyError> {
    match &r.to_client().over {
        Over::H1 => h1::fill(r, timeout_ms).await,
        Over::H2(stream) => {
            let stream = stream.clone();
            h2::fill(r, &stream, timeout_ms).await
        }
    }
}
