# Downloads what a lock file names into a folder that outlives a failed build. Arguments: the folder, how many lines are
# downloaded at once, the file, and `pip download` with its options.
set -e
folder=$1 lines=$2 file=$3
shift 3
parts=$(mktemp -d)
split -l "$lines" "$file" "$parts/"
for part in "$parts"/*; do
  # The index is not asked for what is there. pip compares the hash, also of a file that was cut off.
  "$@" --no-index --find-links "$folder" --dest "$folder" --requirement "$part" >/dev/null 2>&1 \
    || "$@" --dest "$folder" --requirement "$part"
done
rm -r "$parts"
