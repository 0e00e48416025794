//! Names with a hold or a queue, by the directories under the root path.

use std::pin::pin;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use lock_core::backend::{ListFrom, ListPage};
use lock_core::{LockName, Result};
use zookeeper_client::{Client, Error as DriverError};

use crate::connection::Session;
use crate::{error, names, status};

/// The most directories of a page. A page is short if most of them have no queue: the server removes those a minute
/// later.
const MOST: usize = 1024;

/// The number of directories that are listed at a time.
const AT_ONCE: usize = 64;

/// The next names. The directories are listed in the order of their names in ZooKeeper, which no coming and going changes.
pub(crate) async fn list(session: &Session, root: &str, from: &ListFrom, at_most: usize) -> Result<ListPage> {
    let connection = session.connected().await?;
    let client = &connection.client;
    // A server that lags behind may not have the directories of names that are held.
    let (synced, listed) = tokio::join!(session.sync(&connection), client.list_children(root));
    let directories = match (synced, listed) {
        (Ok(()), Ok(directories)) => directories,
        // Nobody has locked anything yet.
        (Ok(()), Err(DriverError::NoNode)) => Vec::new(),
        (Err(error), _) | (_, Err(error)) => return Err(error::lock_error(error)),
    };
    let following = following(directories, from);
    let end = following.last().map(|(directory, _)| directory.clone());
    let looking = following
        .into_iter()
        .take(MOST)
        .map(|(directory, name)| look(client, root, directory, name));
    let mut looking = pin!(stream::iter(looking).buffered(AT_ONCE));
    let (mut names, mut last) = (Vec::new(), None);
    while names.len() < at_most
        && let Some((directory, name)) = looking.try_next().await?
    {
        names.extend(name);
        last = Some(directory);
    }
    let next = last.filter(|last| Some(last) != end.as_ref());
    Ok(ListPage::new(names, next.map(|last| from.go_on_after(last))))
}

/// The directory, and its name if that is taken.
async fn look(client: &Client, root: &str, directory: String, name: LockName) -> Result<(String, Option<LockName>)> {
    let path = format!("{root}/{directory}");
    let is_taken = match client.list_children(&path).await {
        Ok(children) => status::is_taken(client, &path, &children).await,
        Err(DriverError::NoNode) => Ok(false),
        Err(error) => Err(error::lock_error(error)),
    };
    match is_taken {
        Ok(is_taken) => Ok((directory, is_taken.then_some(name))),
        Err(error) => Err(error.with_name(&name)),
    }
}

/// The directories of names that are asked for, from where the page before ended.
fn following(directories: Vec<String>, from: &ListFrom) -> Vec<(String, LockName)> {
    let rest = directories
        .into_iter()
        .filter(|directory| from.after().is_none_or(|after| &**directory > after));
    let named = rest.filter_map(|directory| names::name_of(&directory).map(|name| (directory, name)));
    let mut wanted: Vec<_> = named
        .filter(|(_, name)| name.as_str().starts_with(from.name_prefix()))
        .collect();
    wanted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_where_the_one_before_ended() {
        let directories = ["b", "a%2F2", "%token-offset", "a%2F10", "c", "a%2F1", "other node"].map(str::to_owned);
        let names = |from: &ListFrom| -> Vec<String> {
            let found = following(directories.to_vec(), from);
            found.into_iter().map(|(_, name)| name.as_str().to_owned()).collect()
        };
        assert_eq!(names(&ListFrom::all()), ["a/1", "a/10", "a/2", "b", "c"]);
        let from = ListFrom::prefix("a/");
        assert_eq!(names(&from), ["a/1", "a/10", "a/2"]);
        assert_eq!(names(&from.go_on_after("a%2F10")), ["a/2"]);
        // Its directory was removed meanwhile.
        assert_eq!(names(&from.go_on_after("a%2F11")), ["a/2"]);
        assert_eq!(names(&from.go_on_after("a%2F2")), [""; 0]);
    }
}
