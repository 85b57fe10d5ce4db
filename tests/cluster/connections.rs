//! What a gateway costs the database.

use crate::support::fleet::fleet;
use crate::support::gateway::Key;
use crate::support::postgres::Cluster;

use super::gateways::{BUSY, asked};

#[tokio::test]
async fn three_gateways_at_work_have_two_connections_each() {
    let cluster = Cluster::start(&["max_connections=20"]);
    let members = fleet(&cluster, 3, "10s", "").await;
    let keys: Vec<Key> = {
        let mut keys = Vec::new();
        for member in &members {
            keys.push(member.gateway.create_key().await);
        }
        keys
    };
    for (member, key) in members.iter().flat_map(|member| keys.iter().map(move |key| (member, key)))
    {
        assert_eq!(asked(&member.gateway, key, BUSY).await, Some(200));
        let usage = "/v1/router/usage?group_by=key";
        let admin = &member.gateway.admin_key;
        assert_eq!(member.gateway.manage("GET", usage, admin, None).await.status, 200);
        assert_eq!(member.gateway.manage("GET", "/v1/gateways", admin, None).await.status, 200);
    }
    let open = "SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert_eq!(cluster.run("postgres", open).await, ["6"]);
}
