-- The number of the first place of a queue; and by how much the score of a place is less than its number as long as it is
-- set aside, because its process was not there.
local FIRST, ASIDE = -1000000000000000, 2000000000000000
