//! What the error codes of brokers mean for who produces.

/// What is to be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It was there already, or there is no error.
    Done,
    /// The same again later.
    Later,
    /// The same again, once it has been asked who leads the partition.
    FindLeader,
    /// The broker knows nothing of the producer's state, or another one: what was not acknowledged is sent
    /// under a new number. It is there twice if the broker had it and then lost the state alone.
    NewProducer,
    /// The batch is too large for the topic: it goes in smaller ones, and a single record is refused.
    Smaller,
    /// The records themselves are refused, for good.
    Refused,
    /// Nothing will help but another configuration, here or there; it is tried again, slowly.
    Configuration,
}

/// The name and the remedy of a code.
pub fn meaning(code: i16) -> (&'static str, Remedy) {
    use Remedy::*;
    match code {
        0 => ("NONE", Done),
        2 => ("CORRUPT_MESSAGE", Later),
        3 => ("UNKNOWN_TOPIC_OR_PARTITION", FindLeader),
        5 => ("LEADER_NOT_AVAILABLE", FindLeader),
        6 => ("NOT_LEADER_OR_FOLLOWER", FindLeader),
        7 => ("REQUEST_TIMED_OUT", Later),
        8 => ("BROKER_NOT_AVAILABLE", FindLeader),
        9 => ("REPLICA_NOT_AVAILABLE", FindLeader),
        10 => ("MESSAGE_TOO_LARGE", Smaller),
        13 => ("NETWORK_EXCEPTION", FindLeader),
        14 => ("COORDINATOR_LOAD_IN_PROGRESS", Later),
        15 => ("COORDINATOR_NOT_AVAILABLE", Later),
        17 => ("INVALID_TOPIC_EXCEPTION", Configuration),
        18 => ("RECORD_LIST_TOO_LARGE", Smaller),
        19 => ("NOT_ENOUGH_REPLICAS", Later),
        20 => ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", Later),
        21 => ("INVALID_REQUIRED_ACKS", Configuration),
        29 => ("TOPIC_AUTHORIZATION_FAILED", Configuration),
        31 => ("CLUSTER_AUTHORIZATION_FAILED", Configuration),
        32 => ("INVALID_TIMESTAMP", Refused),
        33 => ("UNSUPPORTED_SASL_MECHANISM", Configuration),
        34 => ("ILLEGAL_SASL_STATE", Configuration),
        35 => ("UNSUPPORTED_VERSION", Configuration),
        43 => ("UNSUPPORTED_FOR_MESSAGE_FORMAT", Configuration),
        45 => ("OUT_OF_ORDER_SEQUENCE_NUMBER", NewProducer),
        46 => ("DUPLICATE_SEQUENCE_NUMBER", Done),
        47 => ("INVALID_PRODUCER_EPOCH", NewProducer),
        49 => ("INVALID_PRODUCER_ID_MAPPING", NewProducer),
        56 => ("KAFKA_STORAGE_ERROR", FindLeader),
        58 => ("SASL_AUTHENTICATION_FAILED", Configuration),
        59 => ("UNKNOWN_PRODUCER_ID", NewProducer),
        72 => ("LISTENER_NOT_FOUND", FindLeader),
        74 => ("FENCED_LEADER_EPOCH", FindLeader),
        75 => ("UNKNOWN_LEADER_EPOCH", Later),
        76 => ("UNSUPPORTED_COMPRESSION_TYPE", Configuration),
        87 => ("INVALID_RECORD", Refused),
        89 => ("THROTTLING_QUOTA_EXCEEDED", Later),
        90 => ("PRODUCER_FENCED", NewProducer),
        _ => ("an error that is not known here", Later),
    }
}

/// A code in words, with what the broker said of it.
pub fn words(code: i16, said: &str) -> String {
    /// Of what a broker says is so much shown.
    const SAID_MAX_CHARS: usize = 300;
    let (name, _) = meaning(code);
    let said: String = said.chars().take(SAID_MAX_CHARS).map(visible).collect();
    match said.is_empty() {
        true => format!("{name} ({code})"),
        false => format!("{name} ({code}): {said}"),
    }
}

fn visible(c: char) -> char {
    if c.is_control() {
        ' '
    } else {
        c
    }
}
