//! The server of connections, and their user and password.

use std::time::Duration;

use lock_core::{CredentialSource, Error, ErrorKind, Result};
use parking_lot::Mutex;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ConnectionInfo, ProtocolVersion};

/// A server, and the credentials for it.
pub(super) struct Access {
    client: Client,
    credentials: Option<CredentialSource>,
    /// The time limit for reading the credentials.
    limit: Duration,
    /// The password of the last connection.
    password: Mutex<Option<String>>,
}

impl Access {
    /// With the settings of connections that suit us.
    pub(super) fn new(
        info: &ConnectionInfo,
        credentials: Option<&CredentialSource>,
        (connect_timeout, response_timeout): (Duration, Duration),
    ) -> Result<Self> {
        // RESP3, since only there the driver reports when a connection ends.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("polylock", env!("CARGO_PKG_VERSION"));
        let keepalive = TcpKeepalive::new()
            .with_time(response_timeout.max(Duration::from_secs(1)))
            .with_interval(Duration::from_secs(1));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(2 * response_timeout);
        Ok(Self {
            password: Mutex::new(settings.password().map(str::to_owned)),
            client: client(info.clone().set_redis_settings(settings).set_tcp_settings(tcp))?,
            credentials: credentials.cloned(),
            limit: connect_timeout,
        })
    }

    /// For the next connection, with the credentials of this moment.
    pub(super) async fn client(&self) -> Result<Client> {
        let Some(source) = &self.credentials else {
            return Ok(self.client.clone());
        };
        let credentials = source.get(self.limit).await?;
        *self.password.lock() = Some(credentials.password().to_owned());
        let mut settings = self
            .info()
            .redis_settings()
            .clone()
            .set_password(credentials.password());
        if let Some(user) = credentials.user() {
            settings = settings.set_username(user);
        }
        client(self.info().clone().set_redis_settings(settings))
    }

    /// But for the credentials, if they are read for each connection.
    pub(super) fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// Hides the source of an error that may quote the password, as a server does that does not know the command for it.
    pub(super) fn hide_quoted(&self, error: &redis::RedisError, shown: Error) -> Error {
        let words = format!("{error} {error:?}");
        let password = self.password.lock();
        let is_quoted = password
            .as_deref()
            .filter(|password| !password.is_empty())
            .is_some_and(|password| words.contains(password) || words.contains("with args beginning with"));
        match is_quoted {
            true => shown.with_source("the server's words quote the password, so they are not shown"),
            false => shown,
        }
    }
}

fn client(info: ConnectionInfo) -> Result<Client> {
    Client::open(info).map_err(|error| {
        Error::new(ErrorKind::Misconfigured, "the driver refuses these settings of a Redis").with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn nothing_waits_to_be_sent_and_silence_ends_a_connection() {
        let info = "redis://localhost".into_connection_info().expect("a good URL");
        let access = Access::new(&info, None, (Duration::from_secs(5), Duration::from_secs(3)));
        let access = access.expect("good settings");
        let tcp = access.info().tcp_settings();
        assert!(tcp.nodelay());
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(3))
            .with_interval(Duration::from_secs(1));
        assert_eq!(format!("{:?}", tcp.keepalive()), format!("{:?}", Some(keepalive)));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        assert_eq!(tcp.user_timeout(), Some(Duration::from_secs(6)));
    }
}
