//! What OpenSSL says of a handshake that has failed, where what rustls says means the same: people look for these
//! words in logs, and programs do.

use weir_tls::rustls::{AlertDescription as Alert, Error, InvalidMessage, PeerIncompatible as Why};

/// Nothing where there are no words that mean the same.
pub fn words(e: &Error) -> Option<&'static str> {
    Some(match e {
        Error::PeerIncompatible(Why::NoCipherSuitesInCommon) => {
            "error:0A0000C1:SSL routines::no shared cipher"
        }
        Error::PeerIncompatible(
            Why::SupportedVersionsExtensionRequired
            | Why::Tls12NotOffered
            | Why::Tls12NotOfferedOrEnabled,
        ) => "error:0A000102:SSL routines::unsupported protocol",
        Error::AlertReceived(Alert::HandshakeFailure) => {
            "error:0A000410:SSL routines::ssl/tls alert handshake failure"
        }
        Error::AlertReceived(Alert::BadCertificate) => {
            "error:0A000412:SSL routines::ssl/tls alert bad certificate"
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "error:0A000415:SSL routines::ssl/tls alert certificate expired"
        }
        Error::AlertReceived(Alert::CertificateUnknown) => {
            "error:0A000416:SSL routines::ssl/tls alert certificate unknown"
        }
        Error::AlertReceived(Alert::UnknownCA) => {
            "error:0A000418:SSL routines::tlsv1 alert unknown ca"
        }
        Error::AlertReceived(Alert::ProtocolVersion) => {
            "error:0A00042E:SSL routines::tlsv1 alert protocol version"
        }
        // The other side does not speak TLS.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "error:0A00010B:SSL routines::wrong version number"
        }
        _ => return None,
    })
}

/// The same of a client whose first bytes are no TLS.
pub(super) fn no_hello(first: &[u8]) -> &'static str {
    let begins = |words: &[&str]| words.iter().any(|w| first.starts_with(w.as_bytes()));
    match () {
        () if begins(&["GET ", "POST ", "HEAD ", "PUT "]) => {
            "error:0A00009C:SSL routines::http request"
        }
        () if begins(&["CONNE"]) => "error:0A00009B:SSL routines::https proxy request",
        () => "error:0A00010B:SSL routines::wrong version number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same_has_openssls_words() {
        let none_shared = Error::PeerIncompatible(Why::NoCipherSuitesInCommon);
        assert_eq!(words(&none_shared), Some("error:0A0000C1:SSL routines::no shared cipher"));
        assert_eq!(words(&Error::DecryptError), None);
        assert_eq!(no_hello(b"CONNECT a"), "error:0A00009B:SSL routines::https proxy request");
    }
}
