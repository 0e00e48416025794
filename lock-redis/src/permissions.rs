//! The permissions that a user of the server needs.

use crate::names::as_pattern;

/// For the connection itself.
const CONNECTION: [&str; 7] = [
    "client|caching",
    "client|tracking",
    "eval",
    "evalsha",
    "ping",
    "scan",
    "subscribe",
];

/// For those of a Redis Cluster, beside its connections' own.
const CLUSTER: [&str; 3] = ["asking", "cluster|slots", "sunsubscribe"];

/// For the scripts: a script may run what its user may. A test reads the scripts.
const SCRIPTS: [&str; 24] = [
    "del",
    "exists",
    "get",
    "hdel",
    "hexists",
    "hget",
    "hincrby",
    "hset",
    "pexpire",
    "pexpireat",
    "pttl",
    "publish",
    "pubsub|numsub",
    "set",
    "time",
    "zadd",
    "zcard",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zrevrange",
    "zrevrangebyscore",
    "zscore",
];

/// Keys, channels and commands for locks with this prefix, with these commands more, of one server or of a Redis Cluster.
pub(crate) fn acl_rules(prefix: &str, more: &[&'static str], is_cluster: bool) -> Vec<String> {
    let prefix = as_pattern(prefix);
    let mut rules: Vec<String> = match &*prefix {
        // Redis accepts no other pattern beside it.
        "" => vec!["~*".into()],
        _ => ["", "{", "{*}:fence:", "{*}:queue:", "{*}:ends:", "{*}:terms:"]
            .map(|before| format!("~{before}{prefix}*"))
            .into(),
    };
    rules.push(match is_cluster {
        true => format!("&{{*}}:{prefix}*"),
        false => format!("&{prefix}*"),
    });
    let mut commands: Vec<&str> = CONNECTION
        .into_iter()
        .chain(SCRIPTS)
        .chain(more.iter().copied())
        .collect();
    if is_cluster {
        commands.extend(CLUSTER);
        for command in &mut commands {
            *command = match *command {
                "subscribe" => "ssubscribe",
                "publish" => "spublish",
                "pubsub|numsub" => "pubsub|shardnumsub",
                other => other,
            };
        }
    }
    commands.sort_unstable();
    rules.extend(commands.iter().map(|command| format!("+{command}")));
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::RedisConfig;

    #[test]
    fn the_scripts_use_these_commands_and_no_others() {
        let mut used = BTreeSet::new();
        let scripts = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocol/scripts")).expect("it is there");
        for script in scripts {
            let text = fs::read_to_string(script.expect("a script").path()).expect("it is text");
            for call in text.split("redis.call('").chain(text.split("redis.pcall('")).skip(1) {
                let words: Vec<&str> = call.split(',').map(|word| word.trim().trim_matches('\'')).collect();
                let command = words[0].split('\'').next().unwrap_or_default().to_lowercase();
                if call.starts_with(|c: char| c.is_ascii_uppercase()) {
                    used.insert(match &*command {
                        "pubsub" => format!("pubsub|{}", words[1].to_lowercase()),
                        _ => command,
                    });
                }
            }
        }
        // Of the one that is run where there is a delay.
        let mut listed: BTreeSet<String> = SCRIPTS.map(String::from).into();
        listed.insert("info".into());
        assert_eq!(listed, used, "list what the scripts call, and say it in lib.rs too");
    }

    #[test]
    fn the_documentation_says_the_same() {
        let rules = RedisConfig::new("cache", 6379).acl_rules().join(" ");
        let documentation: Vec<&str> = include_str!("lib.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! "))
            .flat_map(str::split_whitespace)
            .collect();
        assert!(documentation.join(" ").contains(&rules), "write into lib.rs: {rules}");
    }

    #[test]
    fn a_database_has_to_be_selected() {
        let config = RedisConfig::new("cache", 6379).with_database(2);
        assert!(config.acl_rules().contains(&"+select".to_owned()));
    }

    #[test]
    fn a_cluster_has_channels_in_its_slots() {
        let rules = RedisConfig::cluster([("cache", 7000)]).acl_rules();
        for rule in [
            "&{*}:polylock:*",
            "+spublish",
            "+ssubscribe",
            "+cluster|slots",
            "+pubsub|shardnumsub",
        ] {
            assert!(rules.contains(&rule.to_owned()), "{rules:?}");
        }
        for rule in ["+publish", "+subscribe", "+pubsub|numsub", "+select"] {
            assert!(!rules.contains(&rule.to_owned()), "{rules:?}");
        }
    }

    #[test]
    fn replicas_and_the_delay_need_more() {
        let needs = |config: RedisConfig, command: &str| config.acl_rules().contains(&format!("+{command}"));
        let config = || RedisConfig::new("cache", 6379);
        assert!(!needs(config(), "wait") && !needs(config(), "info"));
        assert!(needs(config().with_replicas(1), "wait") && needs(config().with_replicas(1), "info"));
        let delayed = config().with_restart_delay(std::time::Duration::from_secs(60));
        assert!(needs(delayed.clone(), "info") && !needs(delayed, "wait"));
    }

    #[test]
    fn a_prefix_is_no_pattern() {
        let config = RedisConfig::new("cache", 6379).with_prefix("a*[b] c\\?");
        assert_eq!(config.acl_rules()[0], "~a\\*\\[b\\]?c\\\\\\?*");
        let rules = RedisConfig::new("cache", 6379).with_prefix("").acl_rules();
        assert_eq!(
            rules.iter().filter(|rule| rule.starts_with('~')).collect::<Vec<_>>(),
            ["~*"]
        );
    }
}
