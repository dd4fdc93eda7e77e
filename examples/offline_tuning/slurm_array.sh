#!/usr/bin/env bash
# Tunes the workloads of a list on many nodes, a part on each, then unites the results in one bundle.
# usage: sbatch --array=0-7 --gpus=1 slurm_array.sh workloads.json /shared/lathe-tuning
#        LATHE_COLLECT=1 bash slurm_array.sh workloads.json /shared/lathe-tuning     after all parts have ended
# A part that is preempted or runs out of time may simply be submitted again: it goes on where it was.
#SBATCH --job-name=lathe-tune
#SBATCH --time=02:00:00
#SBATCH --requeue
set -euo pipefail
list=${1:?usage: slurm_array.sh LIST FOLDER}
folder=${2:?usage: slurm_array.sh LIST FOLDER}

if [ -n "${LATHE_COLLECT:-}" ]; then
  lathe cache merge "$folder"/part-* --cache-dir "$folder/all"
  lathe cache export "$folder/kernels.tar" --cache-dir "$folder/all"
  exit
fi

# Arrays may begin at another number than 0.
index=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))
export LATHE_CACHE_DIR="$folder/part-$index"
lathe tune "$list" --device cuda:0 --budget 2m --shard "$index/$SLURM_ARRAY_TASK_COUNT"
