#!/bin/bash
#SBATCH --job-name=predict
#SBATCH --array=1-16
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --output=%x-%A-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# Predicts TABLE in 16 parts, FOLDER/part-01.csv to part-16.csv, each on 4 cores of some machine. A
# part whose time is over goes back into the queue and continues. From the repository, environment
# active:
#   sbatch docs/slurm_predict.sh esol library.parquet predicted
# and when all are there:
#   awk 'FNR > 1 || NR == 1' predicted/part-*.csv > predicted.csv
set -u
shards=16 # as in --array above; a fixed number, so that single parts can be submitted again
model=$1 table=$2 folder=$3
shift 3

part=$folder/$(printf 'part-%02d.csv' "$SLURM_ARRAY_TASK_ID")
if [ -f "$part" ]; then
    echo "$part is there already"
    exit 0
fi
mkdir -p "$folder"

# A part that could not begin at all would come back for ever.
before=$(stat -c %s "$part.partial" 2>/dev/null || echo none)
srun python predict.py "$model" -i "$table" -o "$part" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
    --jobs "$SLURM_CPUS_PER_TASK" --resume "$@"
status=$?
after=$(stat -c %s "$part.partial" 2>/dev/null || echo none)

# Not after a mistake, which would be the same next time.
if [ "$status" -ne 2 ] && [ ! -f "$part" ] && [ "$before" != "$after" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
