INSERT INTO `polylock_fences` (`resource`) VALUES (:resource) ON DUPLICATE KEY UPDATE `writer` = `writer`;
SELECT MAX(`entries`) INTO @polylock_entries FROM `polylock_fences` WHERE `resource` = :resource;
UPDATE `polylock_fences` SET `writer` = :token, `entries` = `entries` + 1
    WHERE `resource` = :resource AND `writer` <= :token AND `reader` <= :token AND `entries` = @polylock_entries;
SELECT `writer`, `reader`, `entries` FROM `polylock_fences` WHERE `resource` = :resource FOR UPDATE;
SELECT `entries` FROM `polylock_fences` WHERE `resource` = :resource;
