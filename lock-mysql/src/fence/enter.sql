INSERT INTO `polylock_fences` (`resource`) VALUES (:resource) ON DUPLICATE KEY UPDATE `writer` = `writer`;
SELECT `entries` FROM `polylock_fences` WHERE `resource` = :resource;
UPDATE `polylock_fences` SET `writer` = :token, `entries` = `entries` + 1
    WHERE `resource` = :resource AND `writer` <= :token AND `reader` <= :token;
SELECT `writer`, `reader`, `entries` FROM `polylock_fences` WHERE `resource` = :resource FOR UPDATE;
