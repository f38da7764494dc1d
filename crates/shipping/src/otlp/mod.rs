//! OpenTelemetry's protocol (OTLP 1.x): logs as protocol buffers, and what answers say, over HTTP and gRPC.

pub mod answer;
pub mod grpc;
pub mod logs;
pub mod proto;
pub mod traces;
