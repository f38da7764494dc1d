//! OpenTelemetry's protocol (OTLP 1.x): logs, metrics and traces as protocol buffers, and what answers say, over HTTP and gRPC.

pub mod answer;
pub mod grpc;
pub mod logs;
pub mod metrics;
pub mod proto;
pub mod traces;
