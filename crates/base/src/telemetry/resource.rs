//! The description of this process for a collector of OTLP.

use std::sync::LazyLock;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::types::Ids;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) static RESOURCE: LazyLock<Resource> = LazyLock::new(|| {
    // Without an id, the metrics of two gateways would be the same series.
    let instance = Ids::system().uuid().to_string();
    // A default resource reads the environment.
    Resource::builder_empty()
        .with_service_name("acp-gateway")
        .with_attribute(KeyValue::new("service.version", VERSION))
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .build()
});
