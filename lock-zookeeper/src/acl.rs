//! The ACLs of the nodes that outlast a hold: the root path, the directories of names, and kept nodes.

use futures_util::future::try_join_all;
use zookeeper_client::{Client, Error as DriverError};

use crate::config::ZooKeeperConfig;
use crate::names;
use crate::protocol::{acls, offset_acls};

/// The number of directories that are changed at a time.
const AT_A_TIME: usize = 64;

/// Gives the root path and all nodes under it the ACLs of this configuration, as of this connection's identities.
pub(crate) async fn rewrite(client: &Client, config: &ZooKeeperConfig) -> Result<(), DriverError> {
    let root = config.root();
    let token_offset = names::token_offset(root);
    let set = async |path: &str| {
        let acls = if path == token_offset {
            offset_acls(config)
        } else {
            acls(config)
        };
        gone_is_fine(client.set_acl(path, &acls, None).await.map(drop))
    };
    set(root).await?;
    let names = client.list_children(root).await?;
    for names in names.chunks(AT_A_TIME) {
        let rewriting = names.iter().map(async |name| {
            let directory = format!("{root}/{name}");
            set(&directory).await?;
            let children = match client.list_children(&directory).await {
                Err(DriverError::NoNode) => return Ok(()),
                children => children?,
            };
            for child in children {
                set(&format!("{directory}/{child}")).await?;
            }
            Ok::<_, DriverError>(())
        });
        try_join_all(rewriting).await?;
    }
    Ok(())
}

fn gone_is_fine(done: Result<(), DriverError>) -> Result<(), DriverError> {
    match done {
        Err(DriverError::NoNode) => Ok(()),
        done => done,
    }
}
