//! Options of `rerouter node`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct NodeArguments {
    /// URL of the gateway, with the name that signatures cover: its `public_url`, else the address
    /// of its listener.
    #[arg(long, value_name = "URL")]
    pub(super) gateway: String,
    /// Id of the node, from `rerouter nodes create`. Its secret is read from REROUTER_NODE_SECRET.
    #[arg(long, value_name = "NODE")]
    pub(super) id: String,
    /// Generation of the secret: 1, plus one for each rotation.
    #[arg(long, default_value_t = 1)]
    pub(super) generation: u32,
    /// URL of the server with the models. Its API key is read from REROUTER_NODE_API_KEY, and sent
    /// to the gateway.
    #[arg(long, value_name = "URL")]
    pub(super) upstream: String,
    /// URL at which the gateway reaches the server. Default: the same as --upstream.
    #[arg(long, value_name = "URL")]
    pub(super) endpoint: Option<String>,
    /// Report only this model (a trailing `*` matches a prefix). Repeatable. Default: all.
    #[arg(long = "model", value_name = "PATTERN")]
    pub(super) models: Vec<String>,
    /// Maximum number of concurrent requests. Default: unlimited.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_concurrency: Option<u32>,
    /// Seconds to wait for running requests when stopped; the full time if the server does not
    /// report its load.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub(super) drain: u64,
    /// PEM file of certificate authorities to trust for the gateway instead of the public ones.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for the server. The gateway has its own:
    /// `nodes.ca`.
    #[arg(long, value_name = "FILE")]
    pub(super) upstream_ca: Option<PathBuf>,
}
