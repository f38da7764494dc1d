//! What a request's client sends: its body, in the protocol that it speaks.

use super::Over;
use crate::body::BodyError;
use crate::request::Request;
use crate::{h1, h2};

/// Waits for more of the body.
pub(crate) async fn fill(r: &mut Request, timeout_ms: u64) -> Result<(), BodyError> {
    match &r.to_client().over {
        Over::H1 => h1::body::fill(r, timeout_ms).await,
        Over::H2(stream) => {
            let stream = stream.clone();
            h2::body::fill(r, &stream, timeout_ms).await
        }
    }
}
