SELECT `writer`, `reader`, `entries` FROM `polylock_fences` WHERE `resource` = :resource LOCK IN SHARE MODE;
SELECT `entries` FROM `polylock_fences` WHERE `resource` = :resource;
